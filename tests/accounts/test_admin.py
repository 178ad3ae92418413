"""People in the admin."""

import pytest
from django.test import Client

from accounts.models import User

pytestmark = pytest.mark.django_db
PEOPLE = "/admin/accounts/user/"
NEW = {"email": "b@example.org", "handle": "babbage", "usable_password": "true"}


@pytest.fixture
def ada(client: Client) -> User:
    ada = User.objects.create_superuser(email="ada@example.org", handle="ada", password="x")
    client.force_login(ada)
    return ada


def test_the_list_finds_people_by_handle_and_address(client: Client, ada: User) -> None:
    assert "ada@example.org" in client.get(PEOPLE, {"q": "ada"}).content.decode()
    assert client.get(PEOPLE, {"q": "@example", "is_staff__exact": "1"}).status_code == 200


def test_an_administrator_adds_a_person_who_can_sign_in(client: Client, ada: User) -> None:
    passwords = {"password1": "mill & store", "password2": "mill & store"}

    assert client.get(f"{PEOPLE}add/").status_code == 200
    response = client.post(f"{PEOPLE}add/", {**NEW, **passwords})

    person = User.objects.get(handle="babbage")
    assert response["Location"] == f"{PEOPLE}{person.pk}/change/"
    assert person.check_password("mill & store")
    assert not person.is_staff


def test_an_administrator_adds_a_person_without_password(client: Client, ada: User) -> None:
    client.post(f"{PEOPLE}add/", {**NEW, "usable_password": "false"})

    assert not User.objects.get(handle="babbage").has_usable_password()


def test_a_taken_name_is_said_at_the_field(client: Client, ada: User) -> None:
    page = client.post(
        f"{PEOPLE}add/",
        {**NEW, "handle": "ADA", "email": "ADA@example.org", "usable_password": "false"},
    )

    assert set(page.context["adminform"].form.errors) == {"email", "handle"}


@pytest.mark.parametrize("email", ['"ada"@example.org', "ada@b\u00fccher.example"])
def test_a_second_spelling_of_an_address_is_said_at_the_field(
    client: Client, ada: User, email: str
) -> None:
    User.objects.create_user(email="ada@xn--bcher-kva.example", handle="lovelace")

    new = {**NEW, "email": email, "usable_password": "false"}
    added = client.post(f"{PEOPLE}add/", new)
    changed = client.post(f"{PEOPLE}{ada.pk}/change/", {"email": email, "handle": "ada"})

    for page in (added, changed):
        assert set(page.context["adminform"].form.errors) == {"email"}


def test_an_administrator_changes_a_person(client: Client, ada: User) -> None:
    change = f"{PEOPLE}{ada.pk}/change/"

    assert client.get(change).status_code == 200
    client.post(change, {"email": "a@example.org", "handle": "Ada", "is_active": "on"})

    ada.refresh_from_db()
    assert (ada.email, ada.handle, ada.is_superuser) == ("a@example.org", "Ada", False)


def test_the_admin_is_for_staff(client: Client) -> None:
    client.force_login(User.objects.create_user(email="b@example.org", handle="babbage"))

    assert client.get("/admin/")["Location"] == "/admin/login/?next=/admin/"
