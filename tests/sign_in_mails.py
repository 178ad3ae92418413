"""Sign-in mails as people read them: find the link and the code."""

import re
from dataclasses import dataclass
from email import message_from_string
from email.message import EmailMessage
from email.policy import default
from typing import Any

from tests.forge_process import ForgeProcess

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


def printed_for(address: str, *, by: ForgeProcess) -> EmailMessage:
    """The newest mail to the address, as Forge prints it where no mail server is set up."""
    by.says(rf"\nTo: {re.escape(address)}\n[^\0]*?\n-{{70,}}\n")
    printed = by.output.rpartition(f"\nTo: {address}\n")
    head = printed[0].rpartition("\nContent-Type: multipart")
    text = "".join(head[1:] + printed[1:]).lstrip().partition(f"\n{'-' * 70}")[0]
    return message_from_string(text, policy=default)


def text_of(mail: EmailMessage, kind: str = "plain") -> str:
    """The mail's words: `plain` or `html`."""
    body = mail.get_body((kind,))
    assert body, mail
    return str(body.get_content())
