"""What a person does with a sign-in mail: ask for it, find link and code in it."""

import re
from dataclasses import dataclass
from typing import Any

from django.core.mail import EmailMultiAlternatives
from django.test import Client

from accounts.models import Allowance

LINK = re.compile(r"https?://[^\s/]+(/sign-in/[\w-]+)")
CODE = re.compile(r"\b(\d{3}) (\d{3})\b")


@dataclass(frozen=True)
class Mailed:
    path: str
    code: str

    @classmethod
    def by(cls, mail: Any) -> "Mailed":
        link, code = LINK.search(mail.body), CODE.search(mail.body)
        assert link and code, mail.body
        return cls(link[1], code[1] + code[2])

    @property
    def token(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def wrong_code(self) -> str:
        return f"{(int(self.code) + 1) % 1_000_000:06}"


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
