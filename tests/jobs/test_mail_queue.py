"""Every mail of the project becomes a job, in the caller's transaction, or the caller's error."""

import email.policy
import logging
import os
from datetime import UTC, datetime, timedelta
from email.message import MIMEPart
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.forms import PasswordResetForm
from django.core.mail import (
    EmailMessage,
    InvalidMailer,
    mail_admins,
    mailers,
    send_mail,
    send_mass_mail,
)
from django.db import DatabaseError, OperationalError, connection, transaction
from django.test import Client, RequestFactory
from django.utils.translation import gettext_lazy

from accounts.models import User
from jobs import attachments
from jobs.engine.testing import assert_enqueued, run_pending
from jobs.error_mail import MOST_MAILS, ErrorMailHandler
from jobs.mail_columns import MOST_BYTES
from jobs.models import EmailJob
from jobs.sweeping import sweep
from tests.jobs.mailing import QUEUE, fresh, mail, sent

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("queue")]


# What becomes a job.


def test_a_sent_mail_is_a_pending_job_with_all_that_it_says() -> None:
    job = sent(
        '"Lovelace, Ada" <ada@example.org>',
        cc=["bob@example.org"],
        bcc=["eve@bücher.example"],
        reply_to=["desk@example.org"],
        from_email="Zoë <zoe@example.org>",
        subject="Über das Werk",
        body="Grüße\n",
        headers={"List-Id": "<engines.example.org>"},
        alternatives=[("<p>Grüße</p>", "text/html")],
    )
    assert (job.status, job.priority, job.max_attempts, job.mailer) == ("pending", 0, 8, "default")
    assert job.to == ['"Lovelace, Ada" <ada@example.org>']
    assert (job.cc, job.bcc) == (["bob@example.org"], ["eve@xn--bcher-kva.example"])
    assert (job.reply_to, job.from_email) == (["desk@example.org"], "Zoë <zoe@example.org>")
    assert (job.subject, job.text, job.html) == ("Über das Werk", "Grüße\n", "<p>Grüße</p>")
    assert job.headers == [["List-Id", "<engines.example.org>"]]
    assert job.message_id == f"<{job.pk}@example.org>"
    assert job.not_after is None


def test_urgent_mail_goes_first_and_is_tried_four_times() -> None:
    job = sent(using="urgent")
    assert (job.priority, job.rank, job.max_attempts, job.mailer) == (100, 100, 4, "urgent")


def test_every_way_to_send_makes_jobs() -> None:
    send_mail("One", "text", None, ["ada@example.org"], html_message="<p>text</p>")
    send_mass_mail([("Two", "text", None, ["ada@example.org"])] * 3)
    assert mailers.default.send_messages([]) == 0
    one = assert_enqueued(EmailJob, subject="One", count=1)[0]
    assert (one.text, one.html) == ("text", "<p>text</p>")
    assert one.from_email == "Forge <forge@localhost>"
    assert_enqueued(EmailJob, subject="Two", count=3)


def test_a_password_reset_makes_a_job(settings: Any) -> None:
    User.objects.create_user(email="ada@example.org", handle="ada", password="mill & store")
    form = PasswordResetForm({"email": "ada@example.org"})
    assert form.is_valid()
    form.send_mail(
        "accounts/mail/sign_in.subject.txt",
        "accounts/sign_in.html",
        {"form": form},
        "forge@example.org",
        "ada@example.org",
    )
    assert_enqueued(EmailJob, to=["ada@example.org"], count=1)


def test_texts_that_are_translated_late_are_text() -> None:
    job = sent(subject=gettext_lazy("Hello"), body=gettext_lazy("A line."))
    assert (job.subject, job.text) == ("Hello", "A line.")


def test_a_mail_of_html_alone_stays_one() -> None:
    message = EmailMessage("Hello", "<p>Hi</p>", to=["ada@example.org"])
    message.content_subtype = "html"
    message.send()
    job = EmailJob.objects.get()
    assert (job.text, job.html) == ("", "<p>Hi</p>")
    assert job.message().message().get_content_type() == "text/html"


def test_a_message_id_of_the_callers_own_is_kept() -> None:
    job = sent(headers={"message-id": "<mine@example.org>"})
    assert job.message_id == "<mine@example.org>"
    assert job.headers == []


def test_the_mail_is_the_same_at_each_attempt() -> None:
    job = sent(attachments=[("a.txt", "text", "text/plain")], headers={"X-Engine": "2"})
    first, second = fresh(job).message(), fresh(job).message()
    for name in ("Message-ID", "Date", "X-Engine", "To", "Subject"):
        assert first.message()[name] == second.message()[name]
    assert first.message()["Message-ID"] == job.message_id


# The caller's transaction.


@pytest.mark.django_db(transaction=True)
def test_a_rolled_back_transaction_sends_nothing() -> None:
    with pytest.raises(KeyError), transaction.atomic():
        mail().send()
        raise KeyError
    assert not EmailJob.objects.exists()


def test_an_error_in_one_of_many_stores_none() -> None:
    with pytest.raises(ValueError, match="no e-mail address"):
        mailers.default.send_messages([mail(), mail("ada")])
    assert not EmailJob.objects.exists()


# What is no mail.


@pytest.mark.parametrize(
    "options",
    [
        {"subject": "Hello\nBcc: eve@example.org"},
        {"subject": "Hello\r\n\r\n<p>text</p>"},
        {"headers": {"X-Engine": "1\nBcc: eve@example.org"}},
        {"headers": {"X-Engine: 1\r\nBcc": "eve@example.org"}},
        {"headers": {"X Engine": "1"}},
        {"headers": {"": "1"}},
        {"headers": {"Bcc": "eve@example.org"}},
        {"headers": {"Expires": "tomorrow"}},
        {"headers": {"Expires": "Mon, 30 Nov 2026 17:22:00 -0000"}},
        {"headers": {"Expires": "Mon, 30 Nov 2026 17:22:00 +99999999999999"}},
        {"headers": {"Expires": "Fri, 31 Dec 9999 23:59:59 -1200"}},
        {"headers": {"Sender": "=?utf-8?q??="}},
        {"headers": {"From": "=@["}},
        {"from_email": ".@[)-a\xad?=."},
        {"from_email": "ada@example.org\nBcc: eve@example.org"},
        {"from_email": "nobody"},
        {"cc": ["bob"]},
        {"bcc": ["bob@example.org\r\nTo: eve@example.org"]},
        {"reply_to": ["bob"]},
        {"subject": "Hello\0"},
        {"subject": "x" * 2001},
        {"body": "text\0"},
        {"body": "half a \ud800 letter"},
        {"attachments": [("a.bin", b"x" * (MOST_BYTES + 1), "application/octet-stream")]},
        {"attachments": [(f"{n}", b"x" * (MOST_BYTES // 2), "image/png") for n in range(3)]},
        {"attachments": [("a\nb.txt", "text", "text/plain")]},
        {"attachments": [("a\0b.txt", "text", "text/plain")]},
    ],
)
def test_what_is_no_mail_is_the_callers_error_and_stores_nothing(
    options: dict[str, Any], data_dir: Path
) -> None:
    for using in ("default", "urgent"):
        with pytest.raises(ValueError, match=r"\w"):
            mail(**options).send(using=using)
    assert not EmailJob.objects.exists()
    assert list(attachments.root().glob("*")) == []


@pytest.mark.parametrize("number", [0, 51])
def test_a_mail_has_recipients_and_not_too_many(number: int) -> None:
    message = EmailMessage("Hello", "text", to=[f"n{n}@example.org" for n in range(number)])
    with pytest.raises(ValueError, match="1 to 50 recipients"):
        mailers.default.send_messages([message])


def test_wrong_options_of_a_mailer_are_told(settings: Any) -> None:
    for options, told in (
        ({"priority": "high"}, "'priority'"),
        ({"priority": 101}, "'priority'"),
        ({"max_attempts": 0}, "'max_attempts'"),
        ({"at_once": True}, "'at_once'"),
        ({"colour": "red"}, "'colour'"),
    ):
        settings.MAILERS = {"default": {"BACKEND": QUEUE, "OPTIONS": options}}
        with pytest.raises(InvalidMailer, match=told):
            mail().send(using="default")


def test_a_mailer_may_keep_few_of_its_mails_under_way(settings: Any) -> None:
    settings.MAILERS = {"default": {"BACKEND": QUEUE, "OPTIONS": {"at_once": 2}}}
    jobs = [sent() for _ in range(3)]
    held = EmailJob.objects.claim(3, worker="test", lease_seconds=30)
    assert [job.pk for job in held] == [job.pk for job in jobs[:2]]


# When the row cannot be written.


def test_a_mail_that_cannot_be_stored_is_the_callers_error() -> None:
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(DatabaseError):
            mail(attachments=[("a", b"x", "image/png")]).send()
        assert list(attachments.root().glob("*")) == []


def test_who_asks_for_silence_is_told_nothing_of_the_database(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from jobs.mail import QueuedEmailBackend

    silent = QueuedEmailBackend(fail_silently=True, alias="default")
    with transaction.atomic():
        transaction.set_rollback(True)
        assert silent.send_messages([mail()]) == 0
    assert "1 mails are not queued" in caplog.text
    # But what is no mail is said, as everywhere in Django.
    with pytest.raises(ValueError, match="no e-mail address"):
        silent.send_messages([mail("ada")])


@pytest.mark.parametrize(
    "columns", [{"to": ["ada"]}, {"to": []}, {"to": ["ada@example.org"], "from_email": "nobody"}]
)
def test_a_row_that_makes_no_mail_fails_for_good(
    columns: dict[str, Any], mailoutbox: list[EmailMessage]
) -> None:
    """As one that a schedule made: nobody is there to be told at once."""
    job = EmailJob.objects.enqueue(subject="Hello", **columns)
    run_pending(EmailJob)
    assert (fresh(job).status, fresh(job).attempts, mailoutbox) == ("failed", 1, [])
    assert "makes no mail" in fresh(job).error_message


def test_a_row_with_recipients_alone_is_a_mail(mailoutbox: list[EmailMessage]) -> None:
    job = EmailJob.objects.enqueue(to=["ada@example.org"])
    run_pending(EmailJob)
    assert fresh(job).status == "completed"
    assert mailoutbox[0].message()["Message-ID"] == f"<{job.pk}@localhost>"


# Attachments.


def test_attachments_are_files_until_the_mail_is_delivered(
    mailoutbox: list[EmailMessage], django_capture_on_commit_callbacks: Any
) -> None:
    picture = MIMEPart(policy=email.policy.default)
    picture.set_content(b"\x89PNG", maintype="image", subtype="png", cid="<mark>")
    letter = EmailMessage("Within", "inner", "a@example.org", ["b@example.org"])
    job = sent(
        attachments=[
            ("notes.txt", "Grüße\n", "text/plain"),
            ("raw.txt", b"\xff\xfe", "text/plain"),
            ("a.bin", bytes(range(256)), None),
            picture,
            ("letter.eml", letter, "message/rfc822"),
        ]
    )
    place = attachments.place(job.pk)
    assert [one["size"] for one in job.attachments][:3] == [8, 2, 256]
    assert sorted(path.name for path in place.iterdir()) == ["0", "1", "2", "3", "4"]
    assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o600}

    with django_capture_on_commit_callbacks(execute=True):
        run_pending(EmailJob)

    built: Any = mailoutbox[0].message()
    parts = list(built.iter_attachments())
    assert [part.get_filename() for part in parts[:3]] == ["notes.txt", "raw.txt", "a.bin"]
    assert parts[0].get_content() == "Grüße\n"
    assert parts[1].get_content() == b"\xff\xfe"
    assert parts[2].get_content() == bytes(range(256))
    assert (parts[3]["Content-ID"], parts[3].get_content()) == ("<mark>", b"\x89PNG")
    assert parts[4].get_content()["Subject"] == "Within"
    assert not place.exists()


def test_attachments_of_a_failed_mail_stay_for_retry_and_go_with_the_row() -> None:
    job = sent(attachments=[("a", b"x", "image/png")])
    (held,) = EmailJob.objects.claim(1, worker="test", lease_seconds=30)
    held.fail(held.log_entry("failed", ended_at=None))
    assert attachments.place(job.pk).exists()
    fresh(job).delete_files()
    assert not attachments.place(job.pk).exists()


def test_a_mail_whose_attachment_is_gone_fails_for_good() -> None:
    job = sent(attachments=[("a", b"x", "image/png")])
    attachments.delete(job.pk)
    run_pending(EmailJob)
    assert fresh(job).status == "failed"
    assert "is gone" in fresh(job).error_message


def age(job: EmailJob, *, days: float) -> None:
    moment = datetime.now(UTC).timestamp() - days * 86_400
    os.utime(attachments.place(job.pk), (moment, moment))


@pytest.mark.django_db(transaction=True)
def test_a_sweep_removes_the_files_of_rolled_back_mails_and_no_others() -> None:
    kept = sent(attachments=[("a", b"x", "image/png")])
    age(kept, days=2)
    ids = []
    for days in (2, 0):
        with transaction.atomic():
            job = sent(attachments=[("a", b"x", "image/png")])
            ids.append(str(job.pk))
            transaction.set_rollback(True)
        age(job, days=days)
    (attachments.root() / "lost+found").mkdir()

    assert sweep(86_400) == ids[:1]

    left = {path.name for path in attachments.root().iterdir()}
    assert left == {str(kept.pk), ids[1], "lost+found"}


# Secret mails.


def expiring(*, minutes: float) -> dict[str, str]:
    return {"Expires": format_datetime(datetime.now(UTC) + timedelta(minutes=minutes))}


def test_the_header_expires_says_until_when_a_mail_may_be_sent() -> None:
    job = sent(headers=expiring(minutes=15))
    assert job.not_after is not None
    assert timedelta(minutes=14) < job.not_after - datetime.now(UTC) <= timedelta(minutes=15)
    assert job.is_secret


def test_a_mail_is_never_sent_after_its_time(mailoutbox: list[EmailMessage]) -> None:
    job = sent(headers=expiring(minutes=-1), body="secret-link")
    run_pending(EmailJob)
    job = fresh(job)
    assert (job.status, job.attempts, mailoutbox) == ("failed", 1, [])
    assert "not sent in time" in job.error_message
    assert (job.text, job.headers) == ("", [])


def row_text(job: EmailJob) -> str:
    return repr(EmailJob.objects.filter(pk=job.pk).values().get())


def ended(job: EmailJob, how: str) -> None:
    if how == "completed":
        run_pending(EmailJob)
        return
    if how == "cancelled before it began":
        job.cancel()
        return
    (held,) = EmailJob.objects.claim(1, worker="test", lease_seconds=30)
    entry = held.log_entry("failed", ended_at=None)
    if how == "failed":
        held.fail(entry)
    elif how == "cancelled":
        held.cancel()
        held.cancelled(entry)
    elif how == "cancelled while it went back":
        held.cancel()
        held.retry_later(5, entry)
    else:
        EmailJob.objects.filter(pk=job.pk).update(max_attempts=1)
        EmailJob.objects.rescue(dead=["test"])


ENDS = [
    *("completed", "failed", "cancelled", "cancelled before it began"),
    *("cancelled while it went back", "worker lost"),
]


@pytest.mark.parametrize("how", ENDS)
def test_a_secret_outlives_no_end_of_its_mail(how: str, mailoutbox: list[EmailMessage]) -> None:
    job = sent(
        body="secret-link",
        headers=expiring(minutes=15) | {"X-Code": "secret-code"},
        alternatives=[("<p>secret-link", "text/html")],
    )
    assert "secret-link" in row_text(job)
    ended(job, how)
    job = fresh(job)
    assert job.is_over
    assert "secret" not in row_text(job)
    assert job.erased_at is not None
    assert [one.body for one in mailoutbox] == ["secret-link"] * (how == "completed")


@pytest.mark.parametrize("how", ENDS)
def test_the_files_of_a_secret_outlive_no_end_of_its_mail(
    how: str, django_capture_on_commit_callbacks: Any
) -> None:
    """Nor do those of another mail outlive its delivery; else they stay, for Retry."""
    jobs = []
    for headers in (expiring(minutes=15), {}):
        job = sent(
            headers=headers,
            attachments=[("code.png", b"secret", "image/png")],
            alternatives=[("secret", "text/calendar")],
        )
        assert len(list(attachments.place(job.pk).iterdir())) == 2
        with django_capture_on_commit_callbacks(execute=True):
            ended(job, how)
        assert fresh(job).is_over
        jobs.append(job)
    secret, another = (attachments.place(job.pk).exists() for job in jobs)
    assert (secret, another) == (False, how != "completed")


@pytest.mark.parametrize("how", ENDS)
def test_another_mail_keeps_its_text_for_retry_until_it_is_delivered(how: str) -> None:
    job = sent(body="the text")
    ended(job, how)
    assert fresh(job).is_over
    assert ("the text" in row_text(job)) is (how != "completed")


def test_an_erased_mail_is_not_sent_again(mailoutbox: list[EmailMessage]) -> None:
    from jobs.engine.lifecycle import Refused

    job = sent(headers=expiring(minutes=15))
    job.cancel()
    with pytest.raises(Refused, match="erased"):
        fresh(job).requeue()
    # As when the page was loaded before the mail ended.
    job.requeue()
    run_pending(EmailJob)
    assert (fresh(job).status, mailoutbox) == ("failed", [])


# Error mails.


def boom(_request: Any) -> None:
    raise RuntimeError("the mill\0 jammed")


def told_of_an_error(page: Any = boom) -> None:
    """What Django logs when a page raised."""
    request = RequestFactory().get("/mill")
    try:
        page(request)
    except Exception:
        logging.getLogger("django.request").error(
            "Internal Server Error: %s",
            "/mill\n" + "x" * 900,
            exc_info=True,
            extra={"request": request},
        )


@pytest.fixture(autouse=True)
def no_errors_before() -> None:
    """What other tests logged counts for the limit of this process too."""
    for handler in logging.getLogger("django").handlers:
        if isinstance(handler, ErrorMailHandler):
            handler.forget()


def test_errors_of_pages_are_mailed_to_the_admins(settings: Any) -> None:
    settings.ADMINS = ["ada@example.org", "bob@example.org"]
    settings.ALLOWED_HOSTS = ["testserver"]
    told_of_an_error()
    (job,) = assert_enqueued(EmailJob, to=["ada@example.org", "bob@example.org"])
    assert job.subject.startswith("[Forge] ERROR")
    assert "/mill" in job.subject and len(job.subject) < 600
    assert "the mill jammed" in job.text


def test_error_mails_are_few_and_hold_no_link_that_opens_anything(settings: Any) -> None:
    settings.ADMINS = ["ada@example.org"]
    handler = ErrorMailHandler(hide="forge.logs.without_tokens")
    for number in range(MOST_MAILS + 5):
        path = f"/sign-in/{'t' * 43}"
        record = logging.LogRecord("x", logging.ERROR, "f", number, f"{path} broke", (), None)
        handler.emit(record)
    mails = EmailJob.objects.all()
    assert len(mails) == MOST_MAILS
    assert all("tttt" not in mail.subject + mail.text for mail in mails)


def test_a_strangers_host_name_is_no_error(settings: Any, client: Client) -> None:
    settings.ADMINS = ["ada@example.org"]
    assert client.get("/healthz", headers={"host": "evil.example"}).status_code == 400
    assert not EmailJob.objects.exists()


def test_without_admins_no_error_is_mailed() -> None:
    told_of_an_error()
    assert not EmailJob.objects.exists()


def test_an_error_mail_that_cannot_be_queued_is_logged_and_never_raised(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.ADMINS = ["ada@example.org"]
    with transaction.atomic():
        transaction.set_rollback(True)
        told_of_an_error()
    assert "an error mail cannot be queued" in caplog.text
    assert not EmailJob.objects.exists()


def away(*_statement: Any) -> None:
    raise OperationalError("the database is away")


def test_an_error_mail_is_not_raised_while_the_database_is_away(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.ADMINS = ["ada@example.org"]
    with connection.execute_wrapper(away):
        told_of_an_error()
    assert "an error mail cannot be queued" in caplog.text
    assert "the database is away" in caplog.text
    assert not EmailJob.objects.exists()


def lost(_request: Any) -> None:
    """As a page that hides what really happened."""
    try:
        raise OperationalError("database is locked")
    except OperationalError:
        raise KeyError("session") from None


def test_an_error_of_a_lost_database_does_not_wait_for_it_again(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """On SQLite, a page that waited for its lock would wait as long again for the mail's."""
    settings.ADMINS = ["ada@example.org"]
    asked: list[str] = []

    def note(execute: Any, sql: str, *more: Any) -> Any:
        asked.append(sql)
        return execute(sql, *more)

    with connection.execute_wrapper(note):
        for _ in range(MOST_MAILS + 1):
            told_of_an_error(lost)
    assert asked == []
    assert caplog.text.count("this error is not mailed") == MOST_MAILS + 1
    assert not EmailJob.objects.exists()
    # Nor do they count: when the database is back, others are mailed.
    told_of_an_error()
    assert EmailJob.objects.count() == 1


def test_a_failing_mail_makes_no_error_mail(settings: Any, caplog: Any) -> None:
    settings.ADMINS = ["ada@example.org"]
    settings.MAILERS = {
        **settings.MAILERS,
        "delivery": {"BACKEND": "tests.jobs.test_mail_queue.Grumbling"},
    }
    job = sent()
    # The worker's own words about a mail, as loud as an operator may have made them.
    logging.getLogger("django").error("%s: attempt %d failed", job, 1)
    run_pending(EmailJob, future=True)
    assert "no such server" in caplog.text
    assert fresh(job).status == "failed"
    assert EmailJob.objects.count() == 1


class Grumbling:
    """A mail backend that logs its troubles where error mails are made."""

    def __init__(self, **_options: Any) -> None:
        pass

    def send_messages(self, _messages: Any) -> int:
        logging.getLogger("django").error("no such server")
        raise OSError("no such server")


def test_mail_admins_is_a_job(settings: Any) -> None:
    settings.ADMINS = ["ada@example.org"]
    mail_admins("The mill", "jammed")
    assert_enqueued(EmailJob, subject="[Forge] The mill", count=1)


# What other tests rely on.


def test_the_mails_of_other_tests_are_in_the_mailoutbox_as_ever(
    settings: Any, mailoutbox: list[EmailMessage]
) -> None:
    settings.MAILERS = {alias: {"BACKEND": LOCMEM_BACKEND} for alias in settings.MAILERS}
    mail(subject="Straight").send()
    assert [one.subject for one in mailoutbox] == ["Straight"]
    assert not EmailJob.objects.exists()


LOCMEM_BACKEND = "django.core.mail.backends.locmem.EmailBackend"


def test_a_page_that_sends_mail_waits_for_nobody(settings: Any, client: Client) -> None:
    """Enqueueing asks no provider: this one would raise."""
    settings.MAILERS = {
        **settings.MAILERS,
        "delivery": {"BACKEND": "tests.jobs.test_mail_queue.Grumbling"},
    }
    assert sent().status == "pending"
