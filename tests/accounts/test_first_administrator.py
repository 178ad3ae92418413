"""The one-time link that makes the first administrator."""

import threading
from typing import Any

import pytest
from django.db import connections
from django.test import Client

from accounts.models import SetupToken, User
from accounts.setup import LinkIsOver, make_first_administrator, setup_link

FORM = {
    "email": "ada@example.org",
    "handle": "ada",
    "password1": "mill & store",
    "password2": "mill & store",
}


def fresh_path() -> str:
    link = setup_link("http://forge.example/")
    assert link is not None
    assert link.startswith("http://forge.example/welcome/")
    return link.removeprefix("http://forge.example")


@pytest.mark.django_db
def test_the_link_makes_an_administrator_who_is_signed_in(client: Client) -> None:
    path = fresh_path()

    page = client.get(path)
    assert page.status_code == 200
    assert page["Referrer-Policy"] == "no-referrer"
    assert "no-store" in page["Cache-Control"]
    assert not User.objects.exists()

    assert client.post(path, FORM)["Location"] == "/"
    ada = User.objects.get()
    assert (ada.email, ada.handle, ada.is_staff, ada.is_superuser) == (
        "ada@example.org",
        "ada",
        True,
        True,
    )
    assert ada.check_password("mill & store")
    assert client.session["_auth_user_id"] == str(ada.pk)


@pytest.mark.django_db
def test_a_browser_that_hides_where_it_comes_from_may_send_the_form() -> None:
    """`no-referrer` makes browsers send `Origin: null` and no cookie is there yet."""
    path = fresh_path()

    response = Client(enforce_csrf_checks=True).post(path, FORM, headers={"origin": "null"})

    assert response.status_code == 302


@pytest.mark.django_db
def test_the_database_keeps_no_token() -> None:
    path = fresh_path()

    assert SetupToken.objects.get().token_hash not in path
    assert path.rsplit("/", 1)[1] not in str(SetupToken.objects.values().get())


@pytest.mark.django_db
def test_there_is_no_link_once_there_is_an_administrator() -> None:
    ada = User.objects.create_superuser(email="ada@example.org", handle="ada")

    assert setup_link("http://forge.example") is None

    User.objects.filter(pk=ada.pk).update(is_active=False)
    assert setup_link("http://forge.example") is not None


@pytest.mark.django_db
def test_the_sign_in_page_of_a_new_forge_points_to_the_link(client: Client) -> None:
    hint = "Open the welcome link"
    assert hint in client.get("/sign-in").content.decode()

    Client().post(fresh_path(), FORM)

    assert hint not in client.get("/sign-in").content.decode()


@pytest.mark.django_db
def test_a_used_link_is_over(client: Client) -> None:
    path = fresh_path()
    client.post(path, FORM)
    stranger = Client()

    for response in (stranger.get(path), stranger.post(path, {**FORM, "email": "b@x.org"})):
        assert response.status_code == 410
        assert "This Forge has its administrator" in response.content.decode()
        assert response["Referrer-Policy"] == "no-referrer"
    assert User.objects.count() == 1


@pytest.mark.django_db
def test_a_used_link_stays_over_when_its_administrator_is_gone(client: Client) -> None:
    path = fresh_path()
    client.post(path, FORM)
    User.objects.update(is_active=False)

    assert Client().get(path).status_code == 404


@pytest.mark.django_db
def test_a_fresh_link_ends_the_older_ones(client: Client) -> None:
    older, newer = fresh_path(), fresh_path()

    assert client.get(older).status_code == 404
    assert "only the newest one works" in client.post(older, FORM).content.decode()
    assert not User.objects.exists()
    assert client.get(newer).status_code == 200


@pytest.mark.django_db
@pytest.mark.parametrize("token", ["x", "%00", "%FF", "é", "x" * 5000])
def test_a_wrong_link_is_a_page_and_no_error(client: Client, token: str) -> None:
    fresh_path()

    response = client.get(f"/welcome/{token}")
    assert response.status_code == 404
    assert "This link does not work any more" in response.content.decode()


@pytest.mark.django_db
def test_a_link_ends_when_an_administrator_comes_another_way(client: Client) -> None:
    path = fresh_path()
    User.objects.create_superuser(email="b@example.org", handle="babbage")

    assert client.get(path).status_code == 410
    with pytest.raises(LinkIsOver):
        make_first_administrator(path.rsplit("/", 1)[1], person=User(email="a@x.org", handle="a"))
    assert SetupToken.objects.get().used_at is None
    assert User.objects.count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"email": "nonsense"}, "email"),
        ({"email": ""}, "email"),
        ({"email": '"ada"@example.org'}, "email"),
        ({"handle": "jobs"}, "handle"),
        ({"handle": "a b"}, "handle"),
        ({"handle": "a\x00"}, "handle"),
        ({"password2": "something else"}, "password2"),
        ({"password1": "password", "password2": "password"}, "password2"),
        ({"password1": "", "password2": ""}, "password1"),
    ],
)
def test_a_form_with_faults_names_them_and_spends_nothing(
    client: Client, change: dict[str, str], field: str
) -> None:
    path = fresh_path()

    page = client.post(path, {**FORM, **change})
    assert page.status_code == 200
    assert field in page.context["form"].errors
    assert not page.context["form"].non_field_errors()

    assert client.post(path, FORM).status_code == 302


@pytest.mark.django_db
def test_a_handle_taken_in_other_case_is_said_at_the_field(client: Client) -> None:
    User.objects.create_user(email="ADA@example.org", handle="ADA")

    page = client.post(fresh_path(), FORM)

    assert set(page.context["form"].errors) == {"email", "handle"}


@pytest.mark.django_db(transaction=True)
def test_of_two_posts_at_once_one_makes_the_administrator() -> None:
    path = fresh_path()
    answers: list[int] = []
    together = threading.Barrier(4)

    def post(number: int) -> None:
        mine: dict[str, Any] = {**FORM, "email": f"p{number}@example.org", "handle": f"p{number}"}
        together.wait()
        try:
            answers.append(Client().post(path, mine).status_code)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=post, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(answers) == [302, 410, 410, 410]
    assert User.objects.filter(is_superuser=True).count() == User.objects.count() == 1
