"""The mail that signs in: who gets one, what it says, and that asking takes the same time for all."""

import logging
from email.utils import format_datetime
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import EmailMultiAlternatives, mailers
from django.db import transaction
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import translation

from accounts.addresses import plain
from accounts.languages import language_of
from accounts.models import SignInToken, User
from accounts.sign_up import may_sign_up
from accounts.signing_in import VALID_FOR, new_row
from accounts.visitors import address_of, browser_of

logger = logging.getLogger(__name__)

MAILER = "urgent"
TEMPLATES = "accounts/mail/sign_in"


def ask(request: HttpRequest, typed: str, *, leads_to: str, may_send: bool) -> SignInToken:
    """Make a row, and send its mail if somebody may sign in with the address and `may_send`.

    What is done is the same whether there is a mail or not, so that time tells nothing.
    """
    person = User.objects.at(typed)
    wanted = person.is_active if person else may_sign_up(typed)
    # To the address that the person has, not to one that the database takes for equal.
    address = person.email if person else plain(typed)
    really = wanted and may_send
    row, token, code = new_row(address, leads_to=leads_to, is_told=really)
    # Before the transaction, which on SQLite keeps all others from writing.
    with translation.override(language_of(person)):
        message = compose(request, row, person=person, token=token, code=code)
    with transaction.atomic():
        row.save(force_insert=True)
        _send(message, really=really)
    return row


def compose(
    request: HttpRequest, row: SignInToken, *, person: User | None, token: str, code: str
) -> EmailMultiAlternatives:
    """The mail, in the active language."""
    browser, system = browser_of(request)
    words: dict[str, Any] = {
        "person": person,
        "address": row.address,
        "link": settings.FORGE_URL + reverse("sign_in_link", args=[token]),
        "code": f"{code[:3]} {code[3:]}",
        "host": urlsplit(settings.FORGE_URL).netloc,
        "minutes": int(VALID_FOR.total_seconds() // 60),
        "asked_at": row.created_at,
        "asked_from": address_of(request),
        "browser": browser,
        "system": system,
    }
    message = EmailMultiAlternatives(
        # A code in the subject would stand on locked screens and in lists of mails.
        subject=" ".join(render_to_string(f"{TEMPLATES}.subject.txt", words).splitlines()).strip(),
        body=render_to_string(f"{TEMPLATES}.txt", words),
        to=[row.address],
        # After the link's end there is nothing left to send, nor to keep.
        headers={"Auto-Submitted": "auto-generated", "Expires": format_datetime(row.expires_at)},
    )
    message.attach_alternative(render_to_string(f"{TEMPLATES}.html", words), "text/html")
    return message


def _send(message: EmailMultiAlternatives, *, really: bool) -> None:
    """Send it; or do the same work and leave nothing of it, if the mailer can `rehearse`."""
    rehearse = getattr(mailers[MAILER], "rehearse", None)
    try:
        with transaction.atomic():
            if really:
                message.send(using=MAILER)
            elif rehearse:
                rehearse([message])
            else:
                message.message()
    except (ValidationError, ValueError) as refused:
        # The page must not tell one address from another, so the log does.
        logger.warning("no sign-in mail was sent: %s", refused)
