"""The signed address in a mail by which its reader switches that sort of mail off."""

from typing import Any

from django.core import signing
from django.urls import reverse

SALT = "accounts.mail_choices"


class BadToken(Exception):
    """Nobody was mailed this."""


def switch_off_path(person: Any, choice: str) -> str:
    """Where `choice`, one of the person's columns in MAIL_CHOICES, is switched off.

    The address is the proof: it stands in mails to the person only. It does not expire, because
    old mails are read too, and it can do nothing else.
    """
    token = signing.dumps([str(person.pk), choice], salt=SALT)
    return reverse("switch_off_mail", args=[token])


def opened(token: str) -> tuple[str, str]:
    """(primary key of the person, column); raises BadToken."""
    try:
        pk, choice = signing.loads(token, salt=SALT)
    except signing.BadSignature as error:
        raise BadToken(str(error)) from None
    return pk, choice
