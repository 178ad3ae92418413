"""Passwords cannot be guessed on and on, whichever form takes them."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth import aauthenticate, authenticate
from django.test import AsyncRequestFactory, Client

from accounts.limits import TooMany
from accounts.models import User
from accounts.passwords import FOR_ADDRESS, FROM_NETWORK
from tests.accounts.at_once import at_once
from tests.accounts.mails import forget_limits, who

pytestmark = pytest.mark.django_db
PASSWORD = "mill & store"
KNOWN, UNKNOWN = "ada@example.org", "eve@example.org"


@pytest.fixture(autouse=True)
def ada(db: None) -> User:
    return User.objects.create_superuser(email=KNOWN, handle="ada", password=PASSWORD)


def sign_in(client: Client, email: str = KNOWN, password: str = "wrong", **more: Any) -> Any:
    return client.post("/sign-in", {"email": email, "password": password}, **more)


def use_up(client: Client, email: str = KNOWN) -> None:
    for number in range(FOR_ADDRESS.count):
        assert sign_in(client, email, REMOTE_ADDR=f"192.0.2.{number}").status_code == 200


@pytest.mark.parametrize("email", [KNOWN, UNKNOWN])
def test_an_address_is_limited_known_or_not_and_from_wherever(client: Client, email: str) -> None:
    use_up(client, email)

    page = sign_in(client, email.upper(), REMOTE_ADDR="192.0.2.99")

    assert page.status_code == 429
    assert 0 < int(page["Retry-After"]) <= FOR_ADDRESS.step.total_seconds()
    assert "A link that was mailed to you works in the meantime." in page.text


def test_the_right_password_comes_too_late_after_too_many_wrong_ones(client: Client) -> None:
    use_up(client)

    assert sign_in(client, password=PASSWORD).status_code == 429
    assert who(client) is None


def test_a_network_is_limited_over_all_addresses(client: Client) -> None:
    for number in range(FROM_NETWORK.count):
        assert sign_in(client, f"p{number}@example.org").status_code == 200

    assert sign_in(client, "another@example.org").status_code == 429
    assert sign_in(client, "another@example.org", REMOTE_ADDR="192.0.2.9").status_code == 200


def test_right_passwords_use_no_limit_up(client: Client) -> None:
    for _time in range(FROM_NETWORK.count + 1):
        assert sign_in(client, password=PASSWORD).status_code == 302
        client.cookies.clear()


def test_the_admins_form_counts_with_the_other(client: Client) -> None:
    admin = "/admin/login/?next=/admin/"
    for _time in range(FOR_ADDRESS.count):
        page = client.post(admin, {"username": KNOWN, "password": "wrong"})
        assert page.status_code == 200

    page = client.post(admin, {"username": KNOWN, "password": PASSWORD})
    assert page.status_code == 429
    assert sign_in(client, password=PASSWORD).status_code == 429

    forget_limits()
    page = client.post(admin, {"username": KNOWN, "password": PASSWORD})
    assert page["Location"] == "/admin/"


def test_code_that_has_no_request_is_not_limited() -> None:
    for _time in range(FOR_ADDRESS.count + 1):
        assert authenticate(username=KNOWN, password="wrong") is None

    assert authenticate(username=KNOWN, password=PASSWORD) is not None


@pytest.mark.django_db(transaction=True)
def test_asynchronous_code_is_limited_too() -> None:
    async def guess() -> None:
        request = AsyncRequestFactory().get("/")
        for _time in range(FOR_ADDRESS.count + 1):
            await aauthenticate(request, username=KNOWN, password="wrong")

    with pytest.raises(TooMany):
        async_to_sync(guess)()


@pytest.mark.django_db(transaction=True)
def test_of_many_guesses_at_once_as_many_are_judged_as_are_allowed() -> None:
    clients = [Client() for _number in range(FOR_ADDRESS.count + 5)]

    answers = at_once(*(lambda one=one: sign_in(one).status_code for one in clients))

    assert sorted(answers) == [200] * FOR_ADDRESS.count + [429] * 5


def test_a_session_of_before_the_limits_goes_on(client: Client, ada: User) -> None:
    client.force_login(ada, backend="django.contrib.auth.backends.ModelBackend")

    assert client.get("/jobs").status_code == 200


def test_spellings_of_an_address_share_its_limit(client: Client) -> None:
    User.objects.create_user(email="boss@mail.example.org", handle="boss", password=PASSWORD)
    spelled = [
        "boss@mail.example.org",
        "boss@\uff4dail\ufe52example.org",
        "boss@ma\uff49l\ufe52example.org",
    ]
    for number in range(FOR_ADDRESS.count):
        address = spelled[number % len(spelled)]
        assert sign_in(client, address, REMOTE_ADDR=f"192.0.2.{number}").status_code == 200
    for address in spelled:
        assert sign_in(client, address, REMOTE_ADDR="192.0.2.99").status_code == 429
