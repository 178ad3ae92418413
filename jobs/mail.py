"""The mail backend that makes a job of every mail: what Django sends, the worker delivers."""

import email.message
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from email.mime.base import MIMEBase
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

from django.core.mail import EmailMessage, InvalidMailer
from django.core.mail.backends.base import BaseEmailBackend
from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, router, transaction

from jobs import attachments
from jobs.attachments import Attachment
from jobs.engine.columns import PRIORITIES
from jobs.engine.concurrency import keys
from jobs.engine.row import uuid7
from jobs.mail_addresses import normal, normal_all
from jobs.models.email_job import EmailJob, message_id_of

logger = logging.getLogger(__name__)

MOST_BYTES = 10 * 1024 * 1024
MOST_RECIPIENTS = 50
_HEADER_NAME = re.compile(r"[!-9;-~]+")


class QueuedEmailBackend(BaseEmailBackend):
    """Inserts an EmailJob for each mail, in the caller's transaction.

    OPTIONS: `priority` and `max_attempts` of its jobs, `at_once`, how many of them may be under way
    at the same time over all workers, and `per_minute`, how many of them may leave in a minute. The
    mail's header `Expires` becomes `not_after`.

    What is no mail raises ValueError, which says what is wrong, and then nothing is stored.
    `fail_silently` is about the database and the disk, as it is about the network elsewhere.
    """

    def __init__(
        self,
        fail_silently: bool = False,
        *,
        priority: int = 0,
        max_attempts: int | None = None,
        at_once: int | None = None,
        per_minute: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.fail_silently = fail_silently
        self.per_minute = per_minute
        given = {
            "priority": (priority, PRIORITIES),
            "max_attempts": (max_attempts, range(1, 1001)),
            "at_once": (at_once, range(1, 1001)),
            "per_minute": (per_minute, range(1, 60_001)),
        }
        for name, (value, allowed) in given.items():
            if value is not None and not (type(value) is int and value in allowed):
                told = f"{name!r} must be a whole number from {allowed[0]} to {allowed[-1]}."
                raise InvalidMailer(told, alias=kwargs.get("alias"))
        self._columns: dict[str, Any] = {"mailer": kwargs.get("alias") or "", "priority": priority}
        if max_attempts is not None:
            self._columns["max_attempts"] = max_attempts
        if at_once is not None:
            self._columns["concurrency_key"] = keys({f"mailer:{self._columns['mailer']}": at_once})

    def send_messages(self, email_messages: Iterable[EmailMessage]) -> int:
        """Enqueue all of them or none; returns how many."""
        rows, attached = self._rows(email_messages)
        try:
            _store(rows, attached)
        except (DatabaseError, InterfaceError, OSError) as error:
            if not self.fail_silently:
                raise
            logger.warning("%d mails are not queued: %s", len(rows), error)
            return 0
        return len(rows)

    def rehearse(self, email_messages: Iterable[EmailMessage]) -> None:
        """Cost and raise what `send_messages` does, in its database and at its time; keep nothing.

        No attached files are written.
        """
        rows, _attached = self._rows(email_messages)
        using = router.db_for_write(EmailJob)
        if using == DEFAULT_DB_ALIAS:
            _store_and_undo(rows, using)
        else:
            transaction.on_commit(partial(_store_and_undo, rows, using))

    def _rows(
        self, email_messages: Iterable[EmailMessage]
    ) -> tuple[list[dict[str, Any]], list[list[Attachment]]]:
        mails = [(columns_of(message), _attached(message)) for message in email_messages]
        for columns, attached in mails:
            _check_size(columns, attached)
        rows = [{**self._columns, **columns} for columns, _attachments in mails]
        return rows, [attached for _columns, attached in mails]


def _store_and_undo(rows: Sequence[dict[str, Any]], using: str) -> None:
    """The same statements as for rows that stay, and a commit that costs as much as theirs."""
    with transaction.atomic(using=using), transaction.atomic(using=using):
        if using == DEFAULT_DB_ALIAS:
            _store(rows, [[] for _row in rows])
        else:
            EmailJob.objects.enqueue_many(rows)
        transaction.set_rollback(True, using=using)


def _store(rows: Sequence[dict[str, Any]], attached: Sequence[list[Attachment]]) -> None:
    """Write the files, then the rows; without rows no files stay."""
    try:
        for row, files in zip(rows, attached, strict=True):
            row["attachments"] = attachments.write(row["id"], files)
        if len(rows) == 1:
            EmailJob.objects.enqueue(**rows[0])
        elif rows:
            with transaction.atomic(using=router.db_for_write(EmailJob)):
                EmailJob.objects.enqueue_many(rows)
    except BaseException:
        for row in rows:
            attachments.delete(row["id"])
        raise


def columns_of(message: EmailMessage) -> dict[str, Any]:
    """The columns of a mail's job, without its attachments; raises ValueError."""
    job_id, sender = uuid7(), normal(str(message.from_email))
    to, cc, bcc = normal_all(message.to), normal_all(message.cc), normal_all(message.bcc)
    if not 1 <= len(to) + len(cc) + len(bcc) <= MOST_RECIPIENTS:
        raise ValueError(f"A mail goes to 1 to {MOST_RECIPIENTS} recipients.")
    for name in message.extra_headers:
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r:.200} is no name of a header.")
    built = _built(message)
    headers = {name: str(built[name]) for name in message.extra_headers}
    text, html = _bodies(message)
    return {
        "id": job_id,
        "to": to,
        "cc": cc,
        "bcc": bcc,
        "reply_to": normal_all(message.reply_to),
        "from_email": sender,
        "subject": str(message.subject),
        "text": text,
        "html": html,
        "tags": [str(tag) for tag in getattr(message, "tags", ())],
        "message_id": _own_id(headers) or message_id_of(job_id, sender=sender),
        "not_after": _not_after(headers),
        "headers": [[name, value] for name, value in headers.items()],
    }


def _built(message: EmailMessage) -> Any:
    """What Django makes of it, which checks line breaks in headers and what cannot be encoded."""
    try:
        built = message.message()
        built.as_bytes()
    except (IndexError, AttributeError, UnboundLocalError, OverflowError) as error:
        # So the parser of the standard library ends for some headers.
        raise ValueError("One of the mail's headers cannot be read.") from error
    return built


def _own_id(headers: dict[str, str]) -> str:
    """Take the Message-ID that the caller gave out of the headers; empty when there is none."""
    given = next((name for name in headers if name.lower() == "message-id"), None)
    return headers.pop(given).strip() if given else ""


def _not_after(headers: dict[str, str]) -> datetime | None:
    """The time in the standard header Expires (RFC 4021)."""
    text = next((value for name, value in headers.items() if name.lower() == "expires"), None)
    if text is None:
        return None
    try:
        moment = parsedate_to_datetime(text)
        storable = moment.tzinfo is not None and bool(moment.astimezone(UTC))
    except Exception:
        # The parser of the standard library ends in all sorts of them.
        storable = False
    if not storable:
        raise ValueError(
            f"The header Expires must be a date with its time zone, as in "
            f"Mon, 30 Nov 2026 17:22:00 +0000; not {text!r:.200}."
        )
    return moment


def _bodies(message: EmailMessage) -> tuple[str, str]:
    """(text, HTML); raises ValueError for a body that is neither."""
    body = str(message.body)
    subtype = message.content_subtype
    if subtype not in ("plain", "html"):
        raise ValueError(f"A mail's body is text or HTML, not text/{subtype}.")
    html = [body] if subtype == "html" else []
    for alternative in getattr(message, "alternatives", ()):
        if alternative.mimetype != "text/html" or html:
            raise ValueError(
                f"A mail has one text and one HTML body; attach the {alternative.mimetype}."
            )
        content = alternative.content
        html.append(content.decode() if isinstance(content, bytes) else str(content))
    return "" if subtype == "html" else body, "".join(html)


def _attached(message: EmailMessage) -> list[Attachment]:
    return [_attachment(one) for one in message.attachments]


def _attachment(one: Any) -> Attachment:
    if isinstance(one, (email.message.Message, MIMEBase)):
        return Attachment(
            one.get_filename() or "", one.get_content_type(), one.as_bytes(), part=True
        )
    name, content, mimetype = one
    return Attachment(name or "", mimetype, b"".join(_bytes(content)))


def _bytes(content: Any) -> Iterator[bytes]:
    match content:
        case str():
            yield content.encode()
        case EmailMessage():
            yield content.message().as_bytes()
        case email.message.Message():
            yield content.as_bytes()
        case _:
            yield bytes(content)


def _check_size(columns: dict[str, Any], attached: Iterable[Attachment]) -> None:
    bodies = len(columns["text"].encode()) + len(columns["html"].encode())
    size = bodies + sum(len(one.content) for one in attached)
    if size > MOST_BYTES:
        raise ValueError(f"The mail has {size} bytes; {MOST_BYTES} are allowed.")
