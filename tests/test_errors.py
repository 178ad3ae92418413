"""A database that does not answer is no fault of Forge's, and pages say so."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.backends.base import UpdateError
from django.contrib.sessions.exceptions import SessionInterrupted
from django.db import OperationalError, connection
from django.http import HttpResponse
from django.test import Client, RequestFactory, override_settings
from django.urls import path

from accounts.models import User
from forge.errors import bad_request, is_weather


def broken(_request: object) -> HttpResponse:
    raise LookupError("our own fault")


def away(_request: object) -> HttpResponse:
    raise OperationalError("the server closed the connection unexpectedly")


handler400 = "forge.errors.bad_request"
handler500 = "forge.errors.server_error"
PASSWORD = "a long enough word"
urlpatterns = [path("broken", broken), path("away", away)]


@pytest.fixture
def visitor() -> Client:
    return Client(raise_request_exception=False)


@pytest.mark.django_db
@override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=[])
@pytest.mark.parametrize(("address", "status"), [("/broken", 500), ("/away", 503)])
def test_weather_is_told_apart_from_our_own_faults(
    visitor: Client, address: str, status: int
) -> None:
    answer = visitor.get(address)
    assert answer.status_code == status
    assert answer.headers.get("Retry-After") == ("10" if status == 503 else None)
    assert f'<p class="code">{status}</p>' in answer.content.decode()


@pytest.fixture
def person(transactional_db: None) -> User:
    return User.objects.create_user(email="ada@example.org", handle="ada", password=PASSWORD)


@pytest.fixture
def locked_database(person: User) -> Iterator[None]:
    """Somebody else writes and does not end; on PostgreSQL, the table of persons is locked."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout = 50")
        with closing(sqlite3.connect(connection.settings_dict["NAME"], uri=True)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
        connection.close()
        return
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '50ms'")
    other = connection.copy()
    with closing(other), other.cursor() as cursor:
        other.set_autocommit(False)
        cursor.execute("LOCK TABLE accounts_user IN ACCESS EXCLUSIVE MODE")
        yield
        other.rollback()
    connection.close()


def test_signing_in_while_the_database_is_locked_is_answered_with_503(
    visitor: Client, person: User, locked_database: None
) -> None:
    answer = visitor.post("/sign-in", {"email": person.email, "password": PASSWORD})
    assert answer.status_code == 503
    assert "database" in answer.content.decode()


def test_a_session_that_cannot_be_written_is_weather_too() -> None:
    request = RequestFactory().get("/")
    request.user = AnonymousUser()
    interrupted = SessionInterrupted("The session was deleted.")
    assert bad_request(request, interrupted).status_code == 400
    # As Django raises it, while it handles what the database said.
    interrupted.__context__ = UpdateError()
    interrupted.__context__.__context__ = OperationalError("database or disk is full")
    assert bad_request(request, interrupted).status_code == 503
    assert not is_weather(OperationalError("no such table: accounts_user"))
