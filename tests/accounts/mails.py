"""What a person does with a sign-in mail, without a browser."""

from typing import Any

from django.core.mail import EmailMultiAlternatives
from django.test import Client

from accounts.models import Allowance
from tests.sign_in_mails import Mailed


def ask(client: Client, address: str, **fields: str) -> Any:
    return client.post("/sign-in", {"email": address, **fields})


def mailed(
    client: Client, outbox: list[EmailMultiAlternatives], address: str, **fields: str
) -> Mailed:
    """Ask for a mail that must come, whatever was asked for before."""
    forget_limits()
    before = len(outbox)
    assert ask(client, address, **fields).status_code == 302
    assert len(outbox) == before + 1
    return Mailed.by(outbox[-1])


def forget_limits() -> None:
    Allowance.objects.all().delete()


def who(client: Client) -> str | None:
    """The primary key of whom the browser is signed in as."""
    return client.session.get("_auth_user_id")
