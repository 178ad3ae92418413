"""How a mail leaves: what a provider of delivery is asked, and what it may answer.

The provider is the mailer `delivery` in MAILERS. Any mail backend will do; those with the methods
of `Provider` say more than that they took a mail.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Protocol, cast

from django.core.mail import EmailMessage, InvalidMailer, mailers
from django.core.mail.backends.base import BaseEmailBackend

from jobs.engine.retry import Failed, Permanent, RetryAfter

ALIAS = "delivery"
NOBODY_KNOWS = (
    "The mail backend fails silently and does not return how many mails it sent, so nobody knows "
    "whether this one was: take fail_silently out of the OPTIONS of the mailer {delivery!r}."
)
LONGEST_WAIT = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Receipt:
    """The provider has the mail; `refused` are the addresses that it will not go to, and why.

    It does not go to those in `later` either, but the provider may take it for them another time.
    """

    provider_message_id: str = ""
    answer: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)
    later: Mapping[str, str] = field(default_factory=dict)


class Unauthorized(Exception):
    """The provider accepts our credentials or our account for no mail; the operator is told why.

    `probe_in` are the seconds after which `Provider.probe` is worth asking for the first time.
    """

    def __init__(self, reason: str, *, probe_in: float = 60) -> None:
        super().__init__(reason)
        self.probe_in = probe_in


class Unsure(Exception):
    """Nobody knows whether the provider took the mail; `seconds` when it said to come back."""

    def __init__(self, reason: str, *, seconds: float | None = None) -> None:
        super().__init__(reason)
        self.seconds = seconds

    def failure(self) -> Failed:
        """What it is for a question, or for an attempt after which there are others."""
        reason = str(self)
        return Failed(reason) if self.seconds is None else RetryAfter(self.seconds, reason)


class Provider(Protocol):
    """Every method may raise `Unauthorized`."""

    can_find: bool
    """Whether `find` can know anything."""

    def deliver(self, message: EmailMessage, *, key: str) -> Receipt:
        """Hand over one mail that is known by `key` from now on.

        Raises `Unsure`, and `retry.Failed`, `Permanent` and `RetryAfter` when it was certainly not
        taken. It goes to the message's `recipients()`, who may be fewer than its headers name.
        """

    def find(self, key: str) -> Receipt | None:
        """The receipt of a mail that was taken before; None when it certainly was not.

        Raises `retry.Failed` and `RetryAfter`, but never `Permanent`, when that cannot be told now.
        """

    def probe(self) -> None:
        """Return if the provider would take mails now; raises whatever it meets."""


class AnyBackend:
    """A mail backend that knows nothing of receipts.

    By Django's contract it returns how many mails it sent, so 0 is a failure, to be tried again.
    One of the old kind that returns None has sent the mail if it raised nothing, unless it is to
    fail silently: then nobody can know, and the mail has failed for good rather than gone twice.
    """

    can_find = False

    def __init__(self, backend: BaseEmailBackend) -> None:
        self._backend = backend

    def deliver(self, message: EmailMessage, *, key: str) -> Receipt:
        sent: int | None = self._backend.send_messages([message])
        if sent is None and getattr(self._backend, "fail_silently", False):
            raise Permanent(NOBODY_KNOWS.format(delivery=ALIAS))
        if sent == 0:
            raise Failed("The mail backend says that it sent nothing, and not why.")
        return Receipt()

    def find(self, key: str) -> Receipt | None:
        return None

    def probe(self) -> None:
        """It has no credentials that we know of."""


def provider() -> Provider:
    """The provider that is in force; raises InvalidMailer."""
    backend = mailers[ALIAS]
    return cast(Provider, backend) if hasattr(backend, "deliver") else AnyBackend(backend)


def per_minute(alias: str) -> int | None:
    """How many of its mails a minute the mailer lets leave; None for any number."""
    try:
        return getattr(mailers[alias], "per_minute", None)
    except InvalidMailer:
        # The settings name it no more.
        return None


def seconds_of(retry_after: str | None, *, now: datetime | None = None) -> float | None:
    """The wait that a Retry-After header asks for, a day at the most; None without a sense."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), LONGEST_WAIT)
    try:
        moment = parsedate_to_datetime(text)
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        wait = (aware - (now or datetime.now(UTC))).total_seconds()
    except Exception:
        # The parser of the standard library ends in all sorts of them.
        return None
    return min(max(0.0, wait), LONGEST_WAIT)
