"""Coming and going by password."""

from typing import Any

import pytest
from django.contrib.auth.hashers import MD5PasswordHasher
from django.test import Client
from django.urls import reverse

from accounts.models import User

PASSWORD = "mill & store"
WRONG = "That e-mail address and password do not belong together."

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_user(email="ada@example.org", handle="ada", password=PASSWORD)


def sign_in(client: Client, address: str = "/sign-in", **fields: str) -> Any:
    return client.post(address, {"email": "ada@example.org", "password": PASSWORD, **fields})


def test_the_right_password_signs_in_and_leads_home(client: Client, ada: User) -> None:
    response = sign_in(client, email="ADA@example.org")

    assert (response.status_code, response["Location"]) == (302, "/")
    assert client.session["_auth_user_id"] == str(ada.pk)


def test_the_session_is_a_new_one_after_sign_in(client: Client, ada: User) -> None:
    session = client.session
    session["kept"] = "yes"
    session.save()

    sign_in(client)

    assert client.session.session_key != session.session_key


def test_the_page_says_the_same_for_unknown_wrong_and_inactive(client: Client, ada: User) -> None:
    User.objects.create_user(
        email="left@example.org", handle="left", password=PASSWORD, is_active=False
    )
    attempts = [
        {"email": "nobody@example.org"},
        {"password": "wrong"},
        {"email": "left@example.org"},
        {"email": "left@example.org", "password": "wrong"},
    ]

    pages = [sign_in(client, **attempt) for attempt in attempts]

    for page in pages:
        assert page.status_code == 200
        assert page.context["form"].non_field_errors() == [WRONG]
        assert page.context["form"].errors.keys() == {"__all__"}
    assert "_auth_user_id" not in client.session


class CountingHasher(MD5PasswordHasher):
    hashed = 0

    def encode(self, password: Any, salt: str) -> str:
        CountingHasher.hashed += 1
        return str(super().encode(password, salt))


def test_an_unknown_address_costs_as_many_hashes_as_a_wrong_password(
    client: Client, settings: Any
) -> None:
    settings.PASSWORD_HASHERS = [f"{__name__}.CountingHasher"]
    User.objects.create_user(email="ada@example.org", handle="ada", password=PASSWORD)

    costs = []
    for attempt in ({"email": "nobody@example.org"}, {"password": "wrong"}):
        before = CountingHasher.hashed
        sign_in(client, **attempt)
        costs.append(CountingHasher.hashed - before)

    assert costs[0] == costs[1] > 0


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"email": ""}, "email"),
        ({"email": "ada"}, "email"),
        ({"email": "a\x00@example.org"}, "email"),
        ({"password": ""}, "password"),
        ({"password": "a\x00b"}, "password"),
    ],
)
def test_bad_input_is_said_at_the_field(
    client: Client, ada: User, fields: dict[str, str], wrong: str
) -> None:
    page = sign_in(client, **fields)

    assert page.status_code == 200
    assert list(page.context["form"].errors) == [wrong]


def test_the_password_is_never_sent_back(client: Client, ada: User) -> None:
    assert b"s3cret-and-wrong" not in sign_in(client, password="s3cret-and-wrong").content


def test_next_leads_where_the_person_wanted_to_go(client: Client, ada: User) -> None:
    wanted = client.get("/jobs?page=2")
    assert wanted["Location"] == "/sign-in?next=/jobs%3Fpage%3D2"
    assert 'name="next" value="/jobs?page=2"' in client.get(wanted["Location"]).content.decode()

    assert sign_in(client, next="/jobs?page=2")["Location"] == "/jobs?page=2"


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://evil.example/",
        "//evil.example/",
        "///evil.example/",
        "/\\evil.example/",
        "\\\\evil.example",
        "http:///evil.example",
        "javascript:alert(1)",
        "http://testserver@evil.example/",
        "\x08//evil.example",
        "/sign-in",
        "/sign-in?next=/sign-in",
        "/" + "x" * 20_000,
    ],
)
def test_next_never_leads_out_of_forge_or_round_in_circles(
    client: Client, ada: User, elsewhere: str
) -> None:
    assert sign_in(client, next=elsewhere)["Location"] == "/"
    assert client.get("/sign-in", {"next": elsewhere})["Location"] == "/"


def test_a_signed_in_person_needs_no_sign_in_page(client: Client, ada: User) -> None:
    client.force_login(ada)

    assert client.get("/sign-in")["Location"] == "/"


def test_signing_out_takes_a_post(client: Client, ada: User) -> None:
    client.force_login(ada)

    page = client.get("/sign-out")
    assert page.status_code == 200
    assert "_auth_user_id" in client.session

    assert client.post("/sign-out")["Location"] == "/sign-in"
    assert "_auth_user_id" not in client.session
    assert "You are signed out." in client.get("/sign-in").content.decode()


def test_signing_out_twice_is_no_error(client: Client) -> None:
    assert client.get("/sign-out")["Location"] == "/sign-in"
    assert client.post("/sign-out")["Location"] == "/sign-in"


def test_a_forged_form_gets_a_page_that_says_what_to_do(ada: User) -> None:
    page = sign_in(Client(enforce_csrf_checks=True))

    assert page.status_code == 403
    assert "Please send that again" in page.content.decode()


def test_pages_carry_their_policies(client: Client) -> None:
    page = client.get(reverse("sign_in"))

    assert "default-src 'self'" in page["Content-Security-Policy"]
    assert "unsafe" not in page["Content-Security-Policy"]
    assert "no-store" in page["Cache-Control"]
