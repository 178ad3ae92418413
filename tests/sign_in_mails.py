"""Sign-in mails as people read them: find the link and the code."""

import re
from dataclasses import dataclass
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any

from tests.forge_process import ForgeProcess
from tests.waiting import wait_for

LINK = re.compile(r"https?://[^\s/]+(/sign-in/[\w-]+)")
CODE = re.compile(r"\b(\d{3}) (\d{3})\b")


@dataclass(frozen=True)
class Mailed:
    path: str
    code: str

    @classmethod
    def in_text(cls, text: str) -> "Mailed":
        link, code = LINK.search(text), CODE.search(text)
        assert link and code, text
        return cls(link[1], code[1] + code[2])

    @classmethod
    def by(cls, mail: Any) -> "Mailed":
        return cls.in_text(mail.body)

    @property
    def token(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def wrong_code(self) -> str:
        return f"{(int(self.code) + 1) % 1_000_000:06}"


def newest_to(address: str, *, of: ForgeProcess) -> EmailMessage:
    """The newest mail to the address, as Forge keeps it where no mail server is set up."""
    mail: EmailMessage = wait_for(lambda: _kept(address, of.data_dir / "outbox"))
    return mail


def _kept(address: str, folder: Path) -> EmailMessage | None:
    paths = sorted(folder.glob("*.eml"), key=lambda path: path.stat().st_mtime, reverse=True)
    mails = (message_from_bytes(path.read_bytes(), policy=default) for path in paths)
    return next((mail for mail in mails if mail["To"] == address), None)


def text_of(mail: EmailMessage, kind: str = "plain") -> str:
    """The mail's words: `plain` or `html`."""
    body = mail.get_body((kind,))
    assert body, mail
    return str(body.get_content())
