"""Everything needs a signed-in person, except what is listed here."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

# Sends strangers to sign in by itself, because it keeps what they had typed.
ASKS_ITSELF = {"start_import"}
# Not there but with DEBUG on, and for browsers on the machine itself; its own tests say so.
FOR_THIS_MACHINE = {"outbox", "outbox_mail", "outbox_html"}
OPEN_TO_ALL = {
    "sign_in",
    "sign_in_code",
    "sign_in_link",
    "sign_out",
    "switch_off_mail",  # its token is mailed to the person alone; its own tests say so
    "welcome",
    "healthz",
    "progress_state",  # who has the token in the address was shown the job's bar
    "progress_stream",
    "repository",  # it shows public ones only; its own tests say so
    "login",  # the admin's
    "jsi18n",
}


def patterns(resolver: URLResolver) -> Iterator[URLPattern]:
    for entry in resolver.url_patterns:
        if isinstance(entry, URLResolver):
            yield from patterns(entry)
        else:
            yield entry


def is_open(pattern: URLPattern) -> bool:
    callback: Any = pattern.callback
    return not getattr(callback, "login_required", True)


def test_no_other_address_is_open() -> None:
    found = {str(pattern.name) for pattern in patterns(get_resolver()) if is_open(pattern)}

    assert found <= OPEN_TO_ALL | ASKS_ITSELF | FOR_THIS_MACHINE


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/", "/import", "/jobs", "/preferences"])
def test_a_stranger_is_asked_to_sign_in(client: Client, path: str) -> None:
    assert client.get(path)["Location"] == f"/sign-in?next={path}"


@pytest.mark.django_db
def test_a_stranger_is_asked_to_sign_in_to_the_admin(client: Client) -> None:
    assert client.get("/admin/")["Location"] == "/admin/login/?next=/admin/"
