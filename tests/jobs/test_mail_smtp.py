"""Delivery by SMTP to a real server, and what its answers mean."""

import email
import email.policy
import logging
import smtplib
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from aiosmtpd.smtp import AuthResult
from django.core.mail.backends.base import BaseEmailBackend
from django.db.models.functions import Now

from jobs.delivery import Unsure
from jobs.engine.execution import Run
from jobs.engine.kinds import Pause
from jobs.engine.testing import run_pending
from jobs.models import EmailJob
from jobs.provider import probe
from jobs.smtp import _refusal
from tests.jobs.mailing import SmtpSink, fresh, queued, sent, smtp_mailer
from tests.postgres import free_port
from tests.postmark import Postmark

pytestmark = pytest.mark.django_db


def attempt(job: EmailJob) -> EmailJob:
    EmailJob.objects.future().update(due=True)
    run_pending(EmailJob)
    return fresh(job)


def received(sink: SmtpSink) -> Any:
    """The one mail that arrived, as a reader sees it."""
    (envelope,) = sink.received
    content = envelope.content
    assert isinstance(content, bytes)
    return email.message_from_bytes(content, policy=email.policy.default)


@pytest.mark.parametrize(
    ("to", "shown", "envelope"),
    [
        ("ada@example.org", "ada@example.org", "ada@example.org"),
        ("ada@bücher.example", "ada@xn--bcher-kva.example", "ada@xn--bcher-kva.example"),
        (
            '"Lovelace, \\"Ada\\"" <ada@example.org>',
            '"Lovelace, \\"Ada\\"" <ada@example.org>',
            "ada@example.org",
        ),
        ("Zoë Ångström <zoe@example.org>", "Zoë Ångström <zoe@example.org>", "zoe@example.org"),
        (
            '"Ångström, \\"Zoë\\"" <zoe@straße.de>',
            '"Ångström, \\"Zoë\\"" <zoe@xn--strae-oqa.de>',
            "zoe@xn--strae-oqa.de",
        ),
        ('"john doe"@example.org', '"john doe"@example.org', '"john doe"@example.org'),
    ],
)
def test_an_address_arrives_as_it_was_meant(
    by_smtp: SmtpSink, to: str, shown: str, envelope: str
) -> None:
    job = attempt(sent(to))
    assert job.status == "completed", job.error_message
    assert received(by_smtp)["To"] == shown
    assert by_smtp.received[0].rcpt_tos == [envelope]


def test_an_address_that_is_longer_than_a_line_is_not_encoded(by_smtp: SmtpSink) -> None:
    """No mail program looks for an address in an encoded word (RFC 2047)."""
    address = f"<https://forge.example.org/preferences/mail/{'x' * 120}>"
    subject = "Grüße und mehr Wörter, als in eine Zeile passen: " + "ä" * 100
    assert attempt(
        sent(subject=subject, headers={"List-Unsubscribe": address, "X-Long": "y" * 900})
    )
    content = by_smtp.received[0].content
    assert isinstance(content, bytes)
    lines = content.decode("ascii").split("\r\n")
    assert f"List-Unsubscribe: {address}" in lines
    assert f"X-Long: {'y' * 900}" in lines
    # What is text is encoded as ever, in lines of 78 characters at the most.
    assert received(by_smtp)["Subject"] == subject
    encoded = [word for line in lines for word in line.split() if word.startswith("=?utf-8?")]
    assert len(encoded) > 2
    assert max(map(len, encoded)) <= 77


def test_a_mail_arrives_whole(by_smtp: SmtpSink) -> None:
    job = attempt(
        sent(
            cc=["bob@example.org"],
            bcc=["eve@example.org"],
            reply_to=["desk@example.org"],
            from_email='"Forge, Zürich" <forge@example.org>',
            subject="Grüße, 你好, and more words than one line of a header may hold at once: "
            + "a " * 60,
            body="Grüße\n.\nafter the dot\n" + "x" * 1200 + "\n",
            headers={"X-Engine": "Nr. 2"},
            alternatives=[("<p>Grüße</p>\n", "text/html")],
            attachments=[
                ("Übersicht.txt", "Inhalt ü\n", "text/plain"),
                ("a.png", b"\0\xff\r\n", "image/png"),
            ],
        )
    )
    assert job.status == "completed", job.error_message
    got, envelope = received(by_smtp), by_smtp.received[0]
    assert envelope.mail_from == "forge@example.org"
    assert envelope.rcpt_tos == ["ada@example.org", "bob@example.org", "eve@example.org"]
    assert got["From"] == '"Forge, Zürich" <forge@example.org>'
    assert (got["Cc"], got["Bcc"], got["Reply-To"]) == ("bob@example.org", None, "desk@example.org")
    assert got["Subject"].strip() == job.subject.strip()
    assert (got["Message-ID"], got["X-Engine"]) == (job.message_id, "Nr. 2")
    assert got["Date"].datetime == job.created_at.replace(microsecond=0)
    text = got.get_body(("plain",)).get_content()
    assert text.replace("\r\n", "\n") == "Grüße\n.\nafter the dot\n" + "x" * 1200 + "\n"
    assert "<p>Grüße</p>" in got.get_body(("html",)).get_content()
    notes, picture = got.iter_attachments()
    assert (notes.get_filename(), notes.get_content().strip()) == ("Übersicht.txt", "Inhalt ü")
    assert (picture.get_filename(), picture.get_content()) == ("a.png", b"\0\xff\r\n")
    assert "queued as 4XyZ" in job.provider_answer


def test_of_a_partly_refused_list_only_the_refused_get_nothing(by_smtp: SmtpSink) -> None:
    by_smtp.refused = {"bob@example.org": "550 no such user"}
    job = attempt(sent("ada@example.org", "bob@example.org"))
    assert (job.status, job.attempts) == ("completed", 1)
    assert job.refused == {"bob@example.org": "no such user"}
    assert [one.rcpt_tos for one in by_smtp.received] == [["ada@example.org"]]


def partly_taken(sink: SmtpSink) -> EmailJob:
    """A mail that Ada has, Bob never gets, and Eve and Zoë may get later."""
    sink.refused = {
        "bob@example.org": "550 no such user",
        "eve@example.org": "450 try again later",
        "zoe@xn--bcher-kva.example": "450 try again later",
    }
    to = ["ada@example.org", "bob@example.org", "Zoë <zoe@bücher.example>"]
    return attempt(sent(*to, bcc=["eve@example.org"]))


def test_only_those_who_may_have_it_later_are_tried_again(by_smtp: SmtpSink) -> None:
    job = partly_taken(by_smtp)
    assert (job.status, job.attempts, job.handed_over_at) == ("pending", 1, None)
    assert job.accepted == ["ada@example.org"]
    assert job.refused == {"bob@example.org": "no such user"}
    assert "eve@example.org: try again later" in job.error_message

    del by_smtp.refused["eve@example.org"]
    job = attempt(job)
    assert (job.status, job.attempts) == ("pending", 2)
    by_smtp.refused = {}
    job = attempt(job)

    assert (job.status, job.attempts) == ("completed", 3)
    assert job.refused == {"bob@example.org": "no such user"}
    assert [one.rcpt_tos for one in by_smtp.received] == [
        ["ada@example.org"],
        ["eve@example.org"],
        ["zoe@xn--bcher-kva.example"],
    ]
    for one in by_smtp.received:
        shown = email.message_from_bytes(one.content, policy=email.policy.default)  # type: ignore[arg-type]
        assert "bob@example.org" in shown["To"] and shown["Message-ID"] == job.message_id
    assert job.provider_answer.count("queued as 4XyZ") == 3


@pytest.mark.parametrize("away", [False, True])
def test_who_may_have_it_later_until_no_attempt_is_left_is_refused(
    settings: Any, by_smtp: SmtpSink, away: bool
) -> None:
    job = partly_taken(by_smtp)
    EmailJob.objects.filter(pk=job.pk).update(max_attempts=2)
    if away:
        settings.MAILERS["delivery"]["OPTIONS"]["port"] = free_port()
        settings.MAILERS = dict(settings.MAILERS)
    job = attempt(job)
    assert (job.status, job.attempts) == ("completed", 2)
    assert set(job.refused) == set(by_smtp.refused)
    assert ("cannot be used" if away else "450") in job.refused["eve@example.org"]
    assert [one.rcpt_tos for one in by_smtp.received] == [["ada@example.org"]]


def test_who_may_have_it_later_is_refused_when_there_is_one_attempt(by_smtp: SmtpSink) -> None:
    by_smtp.refused = {"eve@example.org": "450 try again later"}
    job = sent("ada@example.org", "eve@example.org")
    EmailJob.objects.filter(pk=job.pk).update(max_attempts=1)
    job = attempt(job)
    assert (job.status, job.refused) == ("completed", {"eve@example.org": "try again later"})


def test_who_has_it_already_gets_it_from_no_other_provider(
    settings: Any, by_smtp: SmtpSink, postmark: Postmark
) -> None:
    job = partly_taken(by_smtp)
    settings.MAILERS = queued(postmark.mailer())
    assert attempt(job).status == "completed"
    (got,) = postmark.mails
    assert (got["To"], got["Bcc"]) == ("Zoë <zoe@xn--bcher-kva.example>", "eve@example.org")


@pytest.mark.parametrize(
    ("words", "status"),
    [("550 no such user", "failed"), ("450 mailbox busy", "pending")],
)
def test_a_list_that_is_refused_whole_fails_with_the_servers_words(
    by_smtp: SmtpSink, words: str, status: str
) -> None:
    by_smtp.refused = {"ada@example.org": words}
    job = attempt(sent())
    assert (job.status, job.handed_over_at) == (status, None)
    assert words[:3] in job.error_message and words[4:] in job.error_message


@pytest.mark.parametrize(
    ("says", "status"),
    [("554 looks like spam", "failed"), ("451 disk full", "pending")],
)
def test_a_mail_that_is_refused_fails_with_the_servers_words(
    by_smtp: SmtpSink, says: str, status: str
) -> None:
    by_smtp.says = says
    job = attempt(sent())
    assert (job.status, job.handed_over_at) == (status, None)
    assert says[4:] in job.error_message


def test_a_sender_that_is_refused_for_now_is_tried_again(by_smtp: SmtpSink) -> None:
    by_smtp.greets_sender = "421 too busy"
    job = attempt(sent())
    assert job.status == "pending"
    by_smtp.greets_sender = "250 OK"
    assert attempt(job).status == "completed"


def test_while_the_server_is_away_a_mail_waits(settings: Any, by_smtp: SmtpSink) -> None:
    away = settings.MAILERS["delivery"]
    away["OPTIONS"]["port"] = free_port()
    settings.MAILERS = queued(away)
    job = attempt(sent())
    assert (job.status, job.handed_over_at) == ("pending", None)
    assert "cannot be used" in job.error_message


def test_a_server_without_tls_gets_no_mail_that_was_to_go_by_tls(
    settings: Any, start_smtp: Any
) -> None:
    sink, controller = start_smtp()
    for how in ("use_tls", "use_ssl"):
        settings.MAILERS = queued(smtp_mailer(controller, **{how: True}, timeout=1))
        job = attempt(sent())
        assert job.status == "pending"
        job.cancel()
    assert sink.received == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (smtplib.SMTPServerDisconnected("gone"), Unsure),
        (smtplib.SMTPException("odd"), Unsure),
    ],
)
def test_a_server_that_goes_away_leaves_us_unsure(error: Any, kind: type) -> None:
    assert isinstance(_refusal(error), kind)


def test_nobody_knows_after_a_crash_so_the_mail_goes_again_and_that_is_said(
    by_smtp: SmtpSink, caplog: pytest.LogCaptureFixture
) -> None:
    """At least once: an SMTP server cannot be asked what it took."""
    job = sent()
    (held,) = EmailJob.objects.claim(1, worker="dead", lease_seconds=30)
    held.perform(Run(held, lease_ends=float("inf")))
    EmailJob.objects.rescue(dead=["dead"])
    job = attempt(job)
    assert job.status == "completed"
    first, second = (
        email.message_from_bytes(one.content, policy=email.policy.default)
        for one in by_smtp.received
    )
    assert first["Message-ID"] == second["Message-ID"] == job.message_id
    assert "nobody knows whether it was sent already" in caplog.text


def test_who_cannot_be_asked_after_the_last_attempt_leaves_it_in_doubt(by_smtp: SmtpSink) -> None:
    job = sent()
    EmailJob.objects.filter(pk=job.pk).update(attempts=job.max_attempts - 1)
    (held,) = EmailJob.objects.claim(1, worker="dead", lease_seconds=30)
    held.note(handed_over_at=Now())
    EmailJob.objects.rescue(dead=["dead"])

    job = attempt(job)

    assert (job.status, by_smtp.received) == ("failed", [])
    assert "nobody knows whether it was sent" in job.error_message


# Names and passwords.


# The loopback address has no certificate; aiosmtpd would rather that it had.
in_the_clear = pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")


def with_password(start_smtp: Any, password: bytes) -> Any:
    def check(server: Any, session: Any, envelope: Any, mechanism: str, told: Any) -> AuthResult:
        return AuthResult(success=told.password == password, handled=False)

    return start_smtp(authenticator=check, auth_required=True, auth_require_tls=False)


@in_the_clear
def test_a_refused_password_pauses_all_mail_until_it_works(
    settings: Any, start_smtp: Any, caplog: pytest.LogCaptureFixture
) -> None:
    sink, controller = with_password(start_smtp, b"right")
    account = {"username": "forge", "password": "wrong-secret"}
    settings.MAILERS = queued(smtp_mailer(controller, **account))
    job = attempt(sent())
    assert (job.status, job.attempts) == ("pending", 0)
    (row,) = Pause.objects.all()
    assert row.reason == "provider" and "name and password of SMTP_URL" in row.message
    assert "secret" not in row.message + caplog.text
    assert len([one for one in caplog.records if one.levelno == logging.ERROR]) == 1

    settings.MAILERS = queued(smtp_mailer(controller, username="forge", password="right"))
    assert probe() == "Mail goes on."
    assert attempt(job).status == "completed"
    assert len(sink.received) == 1


@in_the_clear
def test_a_server_that_wants_a_password_pauses_all_mail(settings: Any, start_smtp: Any) -> None:
    _sink, controller = with_password(start_smtp, b"right")
    settings.MAILERS = queued(smtp_mailer(controller))
    job = attempt(sent())
    assert (job.status, job.attempts) == ("pending", 0)
    assert Pause.objects.get().reason == "provider"


def test_any_other_backend_delivers_too(queue: None, mailoutbox: list[Any]) -> None:
    job = attempt(sent())
    assert (job.status, len(mailoutbox)) == ("completed", 1)


class Terse(BaseEmailBackend):
    """A mail backend that says no more than how many mails it sent."""

    sends: ClassVar[list[int | None]] = []

    def __init__(self, fail_silently: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.fail_silently = fail_silently

    def send_messages(self, _messages: Any) -> Any:
        return self.sends.pop(0)


@pytest.fixture
def terse(settings: Any) -> Callable[..., None]:
    """Deliver by a backend that returns these numbers, one for each mail."""

    def choose(*sends: int | None, **options: Any) -> None:
        Terse.sends = list(sends)
        settings.MAILERS = queued({"BACKEND": f"{__name__}.Terse", "OPTIONS": options})

    return choose


@pytest.mark.parametrize("silent", [False, True])
def test_a_backend_that_sent_nothing_is_asked_again(terse: Any, silent: bool) -> None:
    terse(0, 1, fail_silently=silent)
    job = attempt(sent())
    assert (job.status, job.attempts, job.handed_over_at) == ("pending", 1, None)
    assert "it sent nothing" in job.error_message
    assert attempt(job).status == "completed"


def test_a_backend_that_returns_no_number_has_sent_what_raised_nothing(terse: Any) -> None:
    terse(None)
    assert attempt(sent()).status == "completed"


def test_a_backend_that_returns_no_number_and_fails_silently_completes_nothing(terse: Any) -> None:
    terse(None, fail_silently=True)
    job = attempt(sent())
    assert (job.status, job.attempts) == ("failed", 1)
    assert "take fail_silently out of the OPTIONS of the mailer 'delivery'" in job.error_message
