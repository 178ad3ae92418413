"""What a mail of Django's becomes: the columns of its job, and files."""

import copy
import email.message
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from email.mime.base import MIMEBase
from email.utils import parsedate_to_datetime
from typing import Any

from django.core.mail import EmailMessage

from jobs.attachments import AFTER_HTML, BEFORE_HTML, Attachment
from jobs.composing import LISTS, message_id_of
from jobs.engine.row import uuid7
from jobs.mail_addresses import MOST_RECIPIENTS, normal, normal_all

MOST_BYTES = 10 * 1024 * 1024
MOST_HEADER_BYTES = 64 * 1024
"""Writing headers takes a time that grows with their square: so many take seconds already."""
_HEADER_NAME = re.compile(r"[!-9;-~]+")
_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+\s*(;.*)?", re.ASCII)


def read(message: EmailMessage) -> tuple[dict[str, Any], list[Attachment]]:
    """(columns, files) of the mail's job; raises ValueError for what is no mail."""
    try:
        return _read(message)
    except UnicodeEncodeError:
        raise ValueError("The mail holds half a character, which nobody can write.") from None
    except ValueError:
        raise
    except Exception as error:
        # The standard library's parser and writer of mails end in all sorts of them.
        raise ValueError(f"This makes no mail: {type(error).__name__}: {error}") from error


def _read(message: EmailMessage) -> tuple[dict[str, Any], list[Attachment]]:
    number = sum(len(getattr(message, name)) for name in ("to", "cc", "bcc"))
    if not 1 <= number <= MOST_RECIPIENTS:
        raise ValueError(f"A mail goes to 1 to {MOST_RECIPIENTS} recipients.")
    text, html, files = _bodies(message)
    files += [_attachment(one) for one in message.attachments]
    _check_size(message, text + html, files)
    job_id, sender = uuid7(), normal(str(message.from_email))
    addresses: dict[str, Any] = {name: normal_all(getattr(message, name)) for name in LISTS}
    addresses["from_email"] = sender
    headers = _headers(message, addresses)
    columns = {
        "id": job_id,
        **addresses,
        "subject": str(message.subject),
        "text": text,
        "html": html,
        "tags": [str(tag) for tag in getattr(message, "tags", ())],
        "message_id": _own_id(headers) or message_id_of(job_id, sender=sender),
        "not_after": _not_after(headers),
        "headers": [[name, value] for name, value in headers.items()],
    }
    return columns, files


def _check_size(message: EmailMessage, bodies: str, files: Iterable[Attachment]) -> None:
    """Before anything is made of it, because that may take long."""
    in_headers = sum(len(text.encode()) for text in _header_texts(message, files))
    if in_headers > MOST_HEADER_BYTES:
        raise ValueError(
            f"The mail's subject, addresses and other headers have {in_headers} bytes; "
            f"{MOST_HEADER_BYTES} are allowed."
        )
    size = in_headers + len(bodies.encode()) + sum(len(one.content) for one in files)
    if size > MOST_BYTES:
        raise ValueError(f"The mail has {size} bytes; {MOST_BYTES} are allowed.")


def _header_texts(message: EmailMessage, files: Iterable[Attachment]) -> Iterator[str]:
    yield from (str(message.subject), str(message.from_email))
    for name in LISTS:
        yield from (str(address) for address in getattr(message, name))
    for name, value in message.extra_headers.items():
        yield from (str(name), str(value))
    yield from (str(tag) for tag in getattr(message, "tags", ()))
    for one in files:
        yield from (one.name, one.mimetype)


def _headers(message: EmailMessage, addresses: dict[str, Any]) -> dict[str, str]:
    """The caller's own headers as Django writes them, which refuses line breaks."""
    for name in message.extra_headers:
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r:.200} is no name of a header.")
    if not message.extra_headers:
        return {}
    alone = copy.copy(message)
    alone.body, alone.attachments = "", []
    if hasattr(alone, "alternatives"):
        alone.alternatives = []
    for column, value in addresses.items():
        setattr(alone, column, value)
    try:
        built: Any = alone.message()
    except Exception as error:
        if isinstance(error, ValueError) and not isinstance(error, UnicodeError):
            raise
        # So the parser of the standard library ends for some headers.
        raise ValueError("One of the mail's headers cannot be read.") from error
    headers = {name: str(built[name]) for name in message.extra_headers}
    return headers | ({"From": normal(headers["From"])} if "From" in headers else {})


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


def _bodies(message: EmailMessage) -> tuple[str, str, list[Attachment]]:
    """(text, HTML, other versions in their order).

    The text is the body, unless that is of another type; the HTML is the last there is, which is
    the one that mail programs show.
    """
    versions = [(f"text/{message.content_subtype}", _bytes(message.body or ""))]
    for one in getattr(message, "alternatives", ()):
        versions.append((_type(one.mimetype), _bytes(one.content)))
    versions = [(kind, content) for kind, content in versions if content]
    plain = bool(versions) and _is(versions[0][0], "text/plain")
    text = _decoded(versions.pop(0)) if plain else ""
    pages = [number for number, (kind, _content) in enumerate(versions) if _is(kind, "text/html")]
    if not pages:
        return text, "", [_version(one, AFTER_HTML) for one in versions]
    before, html, after = versions[: pages[-1]], versions[pages[-1]], versions[pages[-1] + 1 :]
    others = [_version(one, BEFORE_HTML) for one in before]
    return text, _decoded(html), others + [_version(one, AFTER_HTML) for one in after]


def _type(mimetype: Any) -> str:
    if not (isinstance(mimetype, str) and _TYPE.fullmatch(mimetype)):
        raise ValueError(f"{mimetype!r:.200} is no type of a content, as in text/calendar.")
    return mimetype


def _is(mimetype: str, wanted: str) -> bool:
    return mimetype.partition(";")[0].strip().lower() == wanted


def _decoded(version: tuple[str, bytes]) -> str:
    mimetype, content = version
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ValueError(f"The version of the mail that is {mimetype} is no UTF-8.") from None


def _version(version: tuple[str, bytes], where: str) -> Attachment:
    mimetype, content = version
    if mimetype.lower().startswith("text/"):
        _decoded(version)
    return Attachment("", mimetype, content, alternative=where)


def _attachment(one: Any) -> Attachment:
    if isinstance(one, (email.message.Message, MIMEBase)):
        return Attachment(
            one.get_filename() or "", one.get_content_type(), one.as_bytes(), part=True
        )
    name, content, mimetype = one
    return Attachment(name or "", _type(mimetype) if mimetype else "", _bytes(content))


def _bytes(content: Any) -> bytes:
    match content:
        case bytes() | bytearray() | memoryview():
            return bytes(content)
        case EmailMessage():
            return bytes(content.message().as_bytes())
        case email.message.Message():
            return bytes(content.as_bytes())
        case _:
            # Translations that come late are text too.
            return str(content).encode()
