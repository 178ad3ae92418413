"""Mailers for tests, and mails in every state."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import Envelope
from django.core.mail import EmailMultiAlternatives

from jobs.models import EmailJob
from tests.postgres import free_port
from tests.postmark import Postmark

QUEUE = "jobs.mail.QueuedEmailBackend"
LOCMEM = {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}


def queued(delivery: dict[str, Any], **default: Any) -> dict[str, Any]:
    """MAILERS as Forge has them, with this delivery."""
    urgent = {"priority": 100, "max_attempts": 4}
    return {
        "default": {"BACKEND": QUEUE, "OPTIONS": default},
        "urgent": {"BACKEND": QUEUE, "OPTIONS": urgent},
        "delivery": delivery,
    }


@pytest.fixture
def queue(settings: Any, mailoutbox: list[Any]) -> None:
    """What is sent is queued; what is delivered lands in `mailoutbox`."""
    settings.MAILERS = queued(LOCMEM)


@pytest.fixture
def by_postmark(settings: Any, postmark: Postmark) -> Postmark:
    """What is sent is queued; what is delivered goes to a local Postmark."""
    settings.MAILERS = queued(postmark.mailer())
    return postmark


def mail(*to: str, **options: Any) -> EmailMultiAlternatives:
    subject = options.pop("subject", "Hello")
    body = options.pop("body", "A line.\n")
    return EmailMultiAlternatives(subject, body, to=list(to or ["ada@example.org"]), **options)


def sent(*to: str, using: str = "default", **options: Any) -> EmailJob:
    """The job of a mail that was just sent."""
    before = set(EmailJob.objects.values_list("pk", flat=True))
    assert mail(*to, **options).send(using=using) == 1
    return EmailJob.objects.exclude(pk__in=before).get()


def fresh(job: EmailJob) -> EmailJob:
    return EmailJob.objects.get(pk=job.pk)


class SmtpSink:
    """What a real SMTP server received; tests set what it refuses."""

    def __init__(self) -> None:
        self.received: list[Envelope] = []
        self.refused: dict[str, str] = {}
        self.says = "250 2.0.0 Ok: queued as 4XyZ"
        self.greets_sender = "250 OK"

    async def handle_MAIL(
        self, server: Any, session: Any, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.greets_sender.startswith("250"):
            envelope.mail_from = address
        return self.greets_sender

    async def handle_RCPT(
        self, server: Any, session: Any, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Envelope) -> str:
        if self.says.startswith("250"):
            self.received.append(envelope)
        return self.says


@pytest.fixture
def start_smtp() -> Iterator[Callable[..., tuple[SmtpSink, Controller]]]:
    """Start a real SMTP server on a free port, with these options of aiosmtpd."""
    running: list[Controller] = []

    def start(**options: Any) -> tuple[SmtpSink, Controller]:
        sink = SmtpSink()
        controller = Controller(sink, hostname="127.0.0.1", port=free_port(), **options)
        controller.start()
        running.append(controller)
        return sink, controller

    yield start
    for controller in running:
        controller.stop(no_assert=True)


@pytest.fixture
def by_smtp(settings: Any, start_smtp: Any) -> SmtpSink:
    """What is sent is queued; what is delivered goes to a local SMTP server."""
    sink, controller = start_smtp()
    settings.MAILERS = queued(smtp_mailer(controller))
    return sink


def smtp_mailer(controller: Controller, **options: Any) -> dict[str, Any]:
    told = {"host": "127.0.0.1", "port": controller.port, "timeout": 5, **options}
    return {"BACKEND": "jobs.smtp.SmtpBackend", "OPTIONS": told}
