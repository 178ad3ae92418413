"""Where mail goes that nobody delivers: it is kept under FORGE_DATA_DIR/outbox, and that is said.

With DEBUG on it is printed whole. Without, what is printed is somebody's log, in which no link that
signs in may stand: only to whom it goes, its subject and its file.
"""

import email.policy
import os
import sys
import threading
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage as MimeMessage
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage
from django.core.mail.backends.base import BaseEmailBackend

from jobs.delivery import Receipt
from jobs.engine.text import clean

KEPT = 200
"""So many mails are kept; older ones go."""

_printing = threading.Lock()


class OutboxBackend(BaseEmailBackend):
    """A provider as in `jobs.delivery`, for a machine from which no mail is to leave."""

    can_find = False

    def send_messages(self, email_messages: Iterable[EmailMessage]) -> int:
        return sum(bool(self.deliver(mail, key=str(uuid.uuid4()))) for mail in email_messages)

    def deliver(self, message: EmailMessage, *, key: str) -> Receipt:
        mime: Any = message.message(policy=email.policy.default)
        if message.bcc:
            # Nobody else gets this copy.
            mime["Bcc"] = ", ".join(message.bcc)
        path = root() / f"{key}.eml"
        _keep(path, mime.as_bytes())
        _print(_whole(KeptMail.parsed(path, mime)) if settings.DEBUG else _in_short(path, mime))
        return Receipt(answer=f"Kept in {path.name}.")

    def find(self, key: str) -> Receipt | None:
        return None

    def probe(self) -> None:
        """There is nobody to ask."""


def root() -> Path:
    return Path(settings.FORGE_DATA_DIR) / "outbox"


@dataclass(frozen=True, slots=True)
class KeptMail:
    """One mail of the outbox, as a page shows it."""

    key: uuid.UUID
    headers: list[tuple[str, str]]
    subject: str
    to: str
    text: str
    html: str
    attachments: list[str]
    kept_at: datetime

    @classmethod
    def parsed(cls, path: Path, mime: MimeMessage) -> "KeptMail":
        named = ("From", "To", "Cc", "Bcc", "Reply-To", "Date", "Message-ID")
        return cls(
            key=uuid.UUID(path.stem),
            headers=[(name, str(mime[name])) for name in named if mime[name]],
            subject=str(mime["Subject"] or ""),
            to=", ".join(str(mime[name]) for name in ("To", "Cc", "Bcc") if mime[name]),
            text=_body(mime, "plain"),
            html=_body(mime, "html"),
            attachments=[part.get_filename() or "" for part in mime.iter_attachments()],
            kept_at=datetime.fromtimestamp(path.stat().st_mtime).astimezone(),
        )


def kept() -> list[KeptMail]:
    """The mails of the outbox, newest first."""
    return [mail for path in _newest_first() if (mail := _read(path)) is not None]


def kept_mail(key: uuid.UUID) -> KeptMail | None:
    return _read(root() / f"{key}.eml")


def _read(path: Path) -> KeptMail | None:
    try:
        mime = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
        return KeptMail.parsed(path, mime)
    except (FileNotFoundError, ValueError):
        # Gone since it was listed, or no mail of ours.
        return None


def _body(mime: MimeMessage, subtype: str) -> str:
    part = mime.get_body((subtype,))
    return str(part.get_content()) if part is not None else ""


def _newest_first() -> list[Path]:
    aged = []
    for path in root().glob("*.eml"):
        try:
            aged.append((path.stat().st_mtime_ns, path))
        except FileNotFoundError:
            continue
    return [path for _age, path in sorted(aged, reverse=True)]


def _keep(path: Path, data: bytes) -> None:
    _own_root()
    part = path.with_suffix(f".{uuid.uuid4()}")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    os.replace(part, path)
    for old in _newest_first()[KEPT:]:
        old.unlink(missing_ok=True)


def _own_root() -> None:
    """Make the directory, into which nobody else may look, whoever made it."""
    root().mkdir(mode=0o700, parents=True, exist_ok=True)
    if root().stat().st_mode & 0o077:
        root().chmod(0o700)


def _whole(mail: KeptMail) -> list[str]:
    """To be read: as it is carried, its lines would be cut and its letters encoded."""
    headers = [f"{name}: {value}" for name, value in mail.headers]
    lines = ["-" * 79, *headers, f"Subject: {mail.subject}", "", mail.text or mail.html]
    return [*lines, *(f"[{name}]" for name in mail.attachments), "-" * 79]


def _in_short(path: Path, mime: MimeMessage) -> list[str]:
    to = ", ".join(str(mime[name]) for name in ("To", "Cc", "Bcc") if mime[name])
    return [f"A mail to {to} is kept in {path}: {clean(str(mime['Subject'] or ''))}"]


def _print(lines: list[str]) -> None:
    with _printing:
        sys.stdout.write("\n".join([*lines, ""]))
        sys.stdout.flush()
