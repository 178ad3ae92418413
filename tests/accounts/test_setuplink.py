"""`manage.py setuplink`: the first administrator's link where `up` does not run."""

from io import StringIO
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from accounts.models import SetupToken, User

pytestmark = pytest.mark.django_db


def printed() -> str:
    out = StringIO()
    call_command("setuplink", stdout=out)
    return out.getvalue().strip()


def test_it_prints_a_link_that_is_open_under_the_public_address(
    client: Client, settings: Any
) -> None:
    settings.FORGE_URL = "https://forge.example"

    link = urlsplit(printed())

    assert (link.scheme, link.netloc) == ("https", "forge.example")
    assert client.get(link.path).status_code == 200


def test_a_fresh_link_ends_the_one_before(client: Client) -> None:
    before, fresh = urlsplit(printed()).path, urlsplit(printed()).path

    assert client.get(before).status_code == 404
    assert client.get(fresh).status_code == 200


def test_there_is_none_once_there_is_an_administrator() -> None:
    User.objects.create_superuser(email="ada@example.org", handle="ada")

    with pytest.raises(CommandError, match="has an administrator already"):
        printed()


@pytest.mark.django_db(transaction=True)
def test_a_database_that_was_never_migrated_gets_a_sentence() -> None:
    with connection.schema_editor() as editor:
        editor.alter_db_table(SetupToken, "accounts_setuptoken", "accounts_setuptoken_aside")
    try:
        with pytest.raises(CommandError, match="migrate` run"):
            printed()
    finally:
        with connection.schema_editor() as editor:
            editor.alter_db_table(SetupToken, "accounts_setuptoken_aside", "accounts_setuptoken")
