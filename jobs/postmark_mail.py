"""A mail as Postmark's JSON, which has room for one text, one HTML body, and files."""

import base64
import email.message
import mimetypes
from typing import Any

from django.core.mail import EmailMessage

ADDRESS_HEADERS = {"from", "to", "cc", "bcc", "reply-to", "subject"}


def payload(message: EmailMessage, *, key: str, stream: str) -> dict[str, Any]:
    """The mail as Postmark's JSON; `key` goes along as metadata by which it is found again.

    Postmark puts the real recipients into To and Cc, whatever headers of that name say. A mail for
    nobody but Cc or Bcc has no To: Postmark takes it so, although its documentation asks for one.
    """
    text, html, others = bodies(message)
    recipients = set(message.recipients())
    told: dict[str, Any] = {
        "From": str(message.extra_headers.get("From", message.from_email)),
        "To": ", ".join(one for one in message.to if one in recipients),
        "Cc": ", ".join(one for one in message.cc if one in recipients),
        "Bcc": ", ".join(one for one in message.bcc if one in recipients),
        "ReplyTo": str(message.extra_headers.get("Reply-To", ", ".join(message.reply_to))),
        "Subject": str(message.subject),
        "HtmlBody": html,
        # One of the two bodies must not be empty.
        "TextBody": text or ("" if html else "\n"),
        "Headers": _headers(message),
        "Tag": next(iter(getattr(message, "tags", ())), ""),
        "Attachments": [*others, *(_attachment(one) for one in message.attachments)],
    }
    sent = {name: value for name, value in told.items() if value}
    return sent | {"MessageStream": stream, **({"Metadata": {"jobid": key}} if key else {})}


def bodies(message: EmailMessage) -> tuple[str, str, list[dict[str, str]]]:
    """(text, HTML, what else the mail says, as files); the first two may be empty.

    Of several HTML bodies the last is the one that mail programs show.
    """
    alternatives: Any = getattr(message, "alternatives", ())
    versions = [(str(message.body), f"text/{message.content_subtype}")] if message.body else []
    versions += [(one.content, one.mimetype) for one in alternatives]
    texts = [one for one in versions if bare_type(one[1]) == "text/plain"][:1]
    pages = [one for one in versions if bare_type(one[1]) == "text/html"][-1:]
    others = [_version(*one) for one in versions if not any(one is said for said in texts + pages)]
    return _said(texts), _said(pages), others


def bare_type(mimetype: str) -> str:
    """The type without its parameters, in small letters."""
    return mimetype.partition(";")[0].strip().lower()


def _said(versions: list[tuple[Any, str]]) -> str:
    return "".join(
        content.decode() if isinstance(content, bytes) else str(content)
        for content, _mimetype in versions
    )


def _version(content: Any, mimetype: str) -> dict[str, str]:
    """A version of the body as a file, its text in UTF-8 as in the mail itself."""
    ending = mimetypes.guess_extension(bare_type(mimetype))
    is_text = mimetype.lower().startswith("text/")
    return {
        "Name": f"alternative{ending or ('.txt' if is_text else '.bin')}",
        "Content": base64.b64encode(_data(content)).decode("ascii"),
        "ContentType": _in_utf8(mimetype) if is_text else mimetype,
    }


def _in_utf8(mimetype: str) -> str:
    parts = [part.strip() for part in mimetype.split(";")]
    kept = [part for part in parts if part and not part.lower().startswith("charset=")]
    return "; ".join([*kept, "charset=utf-8"])


def _data(content: Any) -> bytes:
    return content.encode() if isinstance(content, str) else bytes(content or b"")


def _headers(message: EmailMessage) -> list[dict[str, str]]:
    named = [
        {"Name": str(name), "Value": str(value)}
        for name, value in message.extra_headers.items()
        if name.lower() not in ADDRESS_HEADERS
    ]
    # Without this Postmark gives the mail a Message-ID of its own.
    return [*named, {"Name": "X-PM-KeepID", "Value": "true"}]


def _attachment(attached: Any) -> dict[str, str]:
    if isinstance(attached, email.message.Message):
        name, content, mimetype = _part(attached)
        content_id = attached.get("Content-ID", "")
    else:
        (name, content, mimetype), content_id = attached, ""
    told = {
        "Name": name or "attachment",
        "Content": base64.b64encode(_data(content)).decode("ascii"),
        "ContentType": mimetype,
    }
    return told | ({"ContentID": f"cid:{content_id.strip('<> ')}"} if content_id else {})


def _part(part: Any) -> tuple[str, bytes, str]:
    """(name, content, type) of a MIME part; what holds parts of its own goes as a whole mail."""
    name, mimetype = part.get_filename(), part.get_content_type()
    if part.is_multipart():
        whole = part.get_payload(0) if mimetype == "message/rfc822" else part
        return name or "attachment.eml", whole.as_bytes(), "message/rfc822"
    charset = part.get_content_charset() if part.get_content_maintype() == "text" else None
    with_charset = f"{mimetype}; charset={charset}" if charset else mimetype
    return name or "", part.get_payload(decode=True), with_charset
