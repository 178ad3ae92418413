"""A mail of a row as Django's mailers take it, the same at each attempt."""

import email
import email.policy
from collections.abc import Iterable
from datetime import datetime
from email.utils import format_datetime
from typing import Any, Protocol

from django.conf import settings
from django.core.mail import EmailMessage, EmailMultiAlternatives

from jobs.attachments import AFTER_HTML, BEFORE_HTML, Attachment
from jobs.mail_addresses import bare, normal, normal_all

LISTS = ("to", "cc", "bcc", "reply_to")


class Written(Protocol):
    """The columns of which a mail is made."""

    pk: Any
    to: Any
    cc: Any
    bcc: Any
    reply_to: Any
    from_email: str
    subject: str
    text: str
    html: str
    headers: Any
    tags: Any
    message_id: str
    created_at: datetime


def composed(row: Written, attached: Iterable[Attachment]) -> EmailMessage:
    """The mail with these files; raises ValueError for what is no mail."""
    options: dict[str, Any] = {name: normal_all(getattr(row, name)) for name in LISTS}
    if not (options["to"] or options["cc"] or options["bcc"]):
        raise ValueError("It has no recipient.")
    files = list(attached)
    sender = normal(row.from_email or settings.DEFAULT_FROM_EMAIL)
    built = EmailMultiAlternatives(
        row.subject, "", sender, headers=_headers(row, sender=sender), **options
    )
    _say(built, _versions(row, files))
    for one in files:
        if not one.alternative:
            _attach(built, one)
    built.tags = list(row.tags)  # type: ignore[attr-defined]
    return built


def message_id_of(job_id: Any, *, sender: str) -> str:
    """The Message-ID of a mail: known before it is sent, and the same however often that is."""
    return f"<{job_id}@{bare(sender).rpartition('@')[2]}>"


def _headers(row: Written, *, sender: str) -> dict[str, str]:
    headers = {str(name): str(value) for name, value in row.headers}
    headers["Message-ID"] = row.message_id or message_id_of(row.pk, sender=sender)
    if not any(name.lower() == "date" for name in headers):
        headers["Date"] = format_datetime(row.created_at)
    return headers


def _versions(row: Written, files: Iterable[Attachment]) -> list[tuple[str | bytes, str]]:
    """(content, type) of all that says the same, from the plainest to the richest."""
    text: list[tuple[str | bytes, str]] = [(row.text, "text/plain")] if row.text else []
    html: list[tuple[str | bytes, str]] = [(row.html, "text/html")] if row.html else []
    place = {
        where: [(one.content, one.mimetype) for one in files if one.alternative == where]
        for where in (BEFORE_HTML, AFTER_HTML)
    }
    return [*text, *place[BEFORE_HTML], *html, *place[AFTER_HTML]]


def _say(built: EmailMultiAlternatives, versions: list[tuple[str | bytes, str]]) -> None:
    """Make the first version the body where that can be one, the others alternatives."""
    content, mimetype = versions[0] if versions else ("", "")
    maintype, _slash, subtype = mimetype.partition("/")
    if content and maintype == "text":
        built.body = content.decode() if isinstance(content, bytes) else content
        built.content_subtype = subtype
        versions = versions[1:]
    for content, mimetype in versions:
        built.attach_alternative(content, mimetype)


def _attach(built: EmailMessage, one: Attachment) -> None:
    if one.part:
        built.attach(email.message_from_bytes(one.content, policy=email.policy.default))
    else:
        built.attach(one.name or None, one.content, one.mimetype)
