"""What Postmark answers, and what follows for the mail."""

import base64
import email
import email.policy
import json
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.mime.message import MIMEMessage
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from werkzeug import Response

from jobs import provider
from jobs.apps import make_built_in_schedules
from jobs.delivery import seconds_of
from jobs.engine.kinds import Pause, pause, resume
from jobs.engine.schedules import Schedule
from jobs.engine.task_job import TaskJob
from jobs.engine.testing import run_pending
from jobs.models import EmailJob
from jobs.postmark import session
from tests.jobs.mailing import fresh, queued, sent
from tests.postmark import TOKEN, Postmark, answer, problem
from tests.tls import BreakingServer

pytestmark = pytest.mark.django_db

NEXT_YEAR = datetime.now(UTC) + timedelta(days=365)


def attempt(job: EmailJob) -> EmailJob:
    """The job after one attempt."""
    EmailJob.objects.future().update(due=True)
    run_pending(EmailJob)
    return fresh(job)


def waits(job: EmailJob) -> float:
    """Seconds until the job is due again, on the database's clock."""
    found: Any = EmailJob.objects.annotate(now=Now()).get(pk=job.pk)
    return float((found.run_at - found.now).total_seconds())


def forget_the_hand_over(job: EmailJob, *, seconds: float = 60) -> None:
    """Make the attempt that handed it over that long ago."""
    EmailJob.objects.filter(pk=job.pk).update(handed_over_at=Now() - timedelta(seconds=seconds))


# Accepted.


def test_postmark_gets_the_whole_mail(by_postmark: Postmark) -> None:
    job = sent(
        '"Lovelace, Ada" <ada@bücher.example>',
        cc=["bob@example.org"],
        bcc=["eve@example.org"],
        reply_to=["desk@example.org"],
        from_email="Zoë <zoe@example.org>",
        subject="Über das Werk",
        body="Grüße\n",
        headers={"List-Unsubscribe": "<https://forge.example.org/u>"},
        alternatives=[("<p>Grüße</p>", "text/html")],
        attachments=[("notes.txt", "Grüße\n", "text/plain")],
    )
    job = attempt(job)

    (got,) = by_postmark.mails
    assert got["To"] == '"Lovelace, Ada" <ada@xn--bcher-kva.example>'
    assert (got["Cc"], got["Bcc"]) == ("bob@example.org", "eve@example.org")
    assert (got["ReplyTo"], got["From"]) == ("desk@example.org", "Zoë <zoe@example.org>")
    assert got["Subject"] == "Über das Werk"
    assert (got["TextBody"], got["HtmlBody"]) == ("Grüße\n", "<p>Grüße</p>")
    assert got["MessageStream"] == "outbound"
    assert got["Metadata"] == {"jobid": str(job.pk)}
    headers = {one["Name"]: one["Value"] for one in got["Headers"]}
    assert headers["Message-ID"] == job.message_id
    assert headers["X-PM-KeepID"] == "true"
    assert headers["List-Unsubscribe"] == "<https://forge.example.org/u>"
    (attached,) = got["Attachments"]
    assert base64.b64decode(attached["Content"]).decode() == "Grüße\n"
    assert (attached["Name"], attached["ContentType"]) == ("notes.txt", "text/plain")

    assert (job.status, job.attempts) == ("completed", 1)
    assert (job.provider_message_id, job.provider_answer) == (got["MessageID"], "OK")
    assert job.erased_at is not None and job.text == ""
    assert by_postmark.asked == [("POST", "/email")]


@pytest.mark.filterwarnings("ignore:MIMEBase attachments are deprecated")
def test_a_mail_that_is_attached_arrives_whole(by_postmark: Postmark) -> None:
    inner = MIMEMultipart("mixed")
    inner["Subject"] = "Inside"
    inner.attach(MIMEText("Größe\n", "plain", "utf-8"))
    text = MIMEText("Größe\n", "plain", "iso-8859-1")
    job = attempt(sent(attachments=[MIMEMessage(inner), inner, text]))
    assert job.status == "completed", job.error_message
    message, multipart, alone = by_postmark.mails[0]["Attachments"]
    for whole in (message, multipart):
        assert (whole["ContentType"], whole["Name"]) == ("message/rfc822", "attachment.eml")
        got: Any = email.message_from_bytes(
            base64.b64decode(whole["Content"]), policy=email.policy.default
        )
        assert got["Subject"] == "Inside"
        assert [part.get_content() for part in got.iter_parts()] == ["Größe\n"]
    assert alone["ContentType"] == "text/plain; charset=iso-8859-1"
    assert base64.b64decode(alone["Content"]).decode("iso-8859-1") == "Größe\n"


def test_a_mail_of_nothing_but_a_subject_is_accepted(by_postmark: Postmark) -> None:
    assert attempt(sent(body="")).status == "completed"


def test_the_first_tag_and_the_stream_go_along(settings: Any, postmark: Postmark) -> None:
    from tests.jobs.mailing import mail

    settings.MAILERS = queued(postmark.mailer(stream="news"))
    message = mail()
    message.tags = ["import", "failed"]  # type: ignore[attr-defined]
    message.send()
    run_pending(EmailJob)
    assert (postmark.mails[0]["Tag"], postmark.mails[0]["MessageStream"]) == ("import", "news")


def test_of_a_partly_refused_list_only_the_refused_get_nothing(by_postmark: Postmark) -> None:
    by_postmark.inactive = {"bob@example.org", "eve@example.org"}
    job = attempt(sent("ada@example.org", "Bob <bob@example.org>", cc=["eve@example.org"]))
    assert job.status == "completed"
    assert job.refused == {"bob@example.org": "inactive", "eve@example.org": "inactive"}
    assert len(by_postmark.mails) == 1


def test_a_thread_keeps_its_connection() -> None:
    assert session() is session()


# Refused for good.


@pytest.mark.parametrize(
    "response",
    [
        problem(300, "Invalid 'To' address: 'ada@example.org'."),
        problem(406, "You tried to send to recipient(s) that have been marked as inactive."),
        problem(411, "Forbidden attachment type."),
        answer({}, status=413),
        answer({"ErrorCode": 402, "Message": "Invalid JSON."}),
    ],
)
def test_what_trying_again_cannot_cure_fails_with_postmarks_words(
    by_postmark: Postmark, response: Response
) -> None:
    by_postmark.next = [response]
    job = attempt(sent())
    assert (job.status, job.attempts) == ("failed", 1)
    told = (response.get_json() or {}).get("Message", "413")
    assert told in job.error_message
    assert job.text == "A line.\n"


def test_an_inactive_recipient_fails_with_postmarks_words(by_postmark: Postmark) -> None:
    by_postmark.inactive = {"ada@example.org"}
    job = attempt(sent())
    assert job.status == "failed"
    assert "code 406" in job.error_message
    assert "Found inactive addresses: ada@example.org" in job.error_message


# Refused for now.


@pytest.mark.parametrize("status", [400, 408, 429, 500, 502, 503, 504, 302])
def test_what_may_be_better_later_is_tried_again(by_postmark: Postmark, status: int) -> None:
    by_postmark.next = [answer({}, status=status, Location="https://elsewhere.example/")]
    job = attempt(sent())
    assert (job.status, job.attempts) == ("pending", 1)
    assert 4 < waits(job) < 6
    assert str(status) in job.error_message
    forget_the_hand_over(job)
    assert attempt(job).status == "completed"
    assert len(by_postmark.mails) == 1


def test_maintenance_is_waited_for(by_postmark: Postmark) -> None:
    by_postmark.next = [problem(100, "Maintenance.")]
    job = attempt(sent())
    assert (job.status, job.attempts, job.handed_over_at) == ("pending", 1, None)
    assert attempt(job).status == "completed"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_retry_after_is_honoured(by_postmark: Postmark, status: int) -> None:
    by_postmark.next = [answer({}, status=status, **{"Retry-After": "90"})]
    job = attempt(sent())
    assert 88 < waits(job) < 91


@pytest.mark.parametrize("told", ["0", "Mon, 30 Nov 2020 00:00:00 GMT"])
def test_retry_after_burns_no_attempts_in_a_moment(by_postmark: Postmark, told: str) -> None:
    by_postmark.next = [answer({}, status=429, **{"Retry-After": told})]
    job = attempt(sent())
    assert 4 < waits(job) < 6


def test_retry_after_is_seconds_or_a_date_and_never_long() -> None:
    now = datetime(2026, 11, 30, 17, 0, tzinfo=UTC)
    for text, seconds in (
        ("7", 7.0),
        (" 0 ", 0.0),
        ("999999999999999999999", 86_400.0),
        (format_datetime(now + timedelta(seconds=40), usegmt=True), 40.0),
        (format_datetime(now - timedelta(days=2), usegmt=True), 0.0),
        ("Mon, 30 Nov 2026 17:00:09 -0000", 9.0),
        ("-5", None),
        ("soon", None),
        ("Mon, 30 Nov 2026 17:22:00 +99999999999999", None),
        ("Mon, 30 Nov 99999999999 17:22:00 +0000", None),
        ("Fri, 31 Dec 9999 23:59:59 -1200", 86_400.0),
        ("²", None),
        ("", None),
        (None, None),
    ):
        assert seconds_of(text, now=now) == seconds, text


def test_while_postmark_is_down_a_mail_waits(by_postmark: Postmark) -> None:
    by_postmark.stop()
    job = attempt(sent())
    assert (job.status, job.attempts, job.handed_over_at) == ("pending", 1, None)
    assert "cannot be reached" in job.error_message
    by_postmark.start()
    assert attempt(job).status == "completed"
    # Nothing had left, so nothing was looked up.
    assert by_postmark.asked == [("POST", "/email")]


@pytest.fixture
def breaking(by_postmark: Postmark, tmp_path: Path) -> Iterator[BreakingServer]:
    """What Postmark takes over TLS, of which its answer breaks."""
    server = BreakingServer(tmp_path, lambda body: by_postmark.take(json.loads(body)))
    yield server
    server.stop()


def test_a_fault_of_tls_after_the_mail_left_leaves_it_in_doubt(
    settings: Any,
    by_postmark: Postmark,
    breaking: BreakingServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(breaking.certificate))
    settings.MAILERS = queued(by_postmark.mailer(api_url=breaking.url))
    job = attempt(sent())
    assert (job.status, len(by_postmark.mails)) == ("pending", 1)
    assert job.handed_over_at is not None
    assert "SSLError" in job.error_message

    settings.MAILERS = queued(by_postmark.mailer())
    forget_the_hand_over(job)
    job = attempt(job)

    assert (job.status, len(by_postmark.mails)) == ("completed", 1)
    assert job.provider_message_id == by_postmark.mails[0]["MessageID"]


def test_a_certificate_that_nobody_trusts_is_met_before_anything_leaves(
    settings: Any, by_postmark: Postmark, breaking: BreakingServer
) -> None:
    settings.MAILERS = queued(by_postmark.mailer(api_url=breaking.url))
    job = attempt(sent())
    assert (job.status, job.handed_over_at, by_postmark.mails) == ("pending", None, [])
    assert "SSLError" in job.error_message


# An answer that was lost.


def test_a_mail_whose_answer_was_lost_is_looked_up_and_not_sent_again(
    by_postmark: Postmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.postmark.TIMEOUTS", (5, 0.2))
    by_postmark.loses_answers = True
    job = attempt(sent())
    assert (job.status, len(by_postmark.mails)) == ("pending", 1)
    assert "ReadTimeout" in job.error_message
    by_postmark.loses_answers = False
    by_postmark.released.set()

    job = attempt(job)

    assert (job.status, job.attempts, len(by_postmark.mails)) == ("completed", 2, 1)
    assert job.provider_message_id == by_postmark.mails[0]["MessageID"]
    assert "Found" in job.provider_answer


def test_what_was_just_handed_over_has_time_to_be_found(by_postmark: Postmark) -> None:
    """A provider may know a mail before its search does."""
    job = sent()
    forget_the_hand_over(job, seconds=1)
    job = attempt(job)
    assert (job.status, job.attempts, by_postmark.mails) == ("pending", 0, [])
    assert 5 < waits(job) <= 20
    forget_the_hand_over(job)
    assert attempt(job).status == "completed"
    assert len(by_postmark.mails) == 1


def test_another_mail_of_the_search_is_not_taken_for_ours(
    by_postmark: Postmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = {"MessageID": "x", "Metadata": {"jobid": "another"}}
    monkeypatch.setattr(by_postmark, "_search", lambda _request: answer({"Messages": [foreign]}))
    by_postmark.stop()
    by_postmark.start()
    job = sent()
    forget_the_hand_over(job)
    assert attempt(job).status == "completed"
    assert len(by_postmark.mails) == 1


def test_a_failed_search_sends_nothing(by_postmark: Postmark) -> None:
    job = sent()
    forget_the_hand_over(job)
    by_postmark.stop()
    job = attempt(job)
    assert job.status == "pending"
    by_postmark.start()
    assert attempt(job).status == "completed"


# The last attempt, after which there is none to look up what it did.


def lost_in_its_last_attempt(job: EmailJob, *, seconds: float = 60) -> EmailJob:
    """The job, rescued from a worker that died in its last attempt, after it was handed over."""
    EmailJob.objects.filter(pk=job.pk).update(attempts=job.max_attempts - 1)
    (held,) = EmailJob.objects.claim(1, worker="dead", lease_seconds=30)
    forget_the_hand_over(held, seconds=seconds)
    EmailJob.objects.rescue(dead=["dead"])
    return fresh(job)


def test_a_mail_whose_worker_died_in_the_last_attempt_is_looked_up(by_postmark: Postmark) -> None:
    job = sent()
    taken = {"MessageID": "x", "Metadata": {"jobid": str(job.pk)}, "MessageStream": "outbound"}
    by_postmark.mails.append(taken)
    job = lost_in_its_last_attempt(job)
    assert (job.status, job.attempts) == ("pending", 8)

    job = attempt(job)

    assert (job.status, job.attempts, job.provider_message_id) == ("completed", 9, "x")
    assert by_postmark.mails == [taken]


def test_a_mail_that_nobody_has_after_the_last_attempt_has_failed(by_postmark: Postmark) -> None:
    job = attempt(lost_in_its_last_attempt(sent()))
    assert (job.status, by_postmark.mails) == ("failed", [])
    assert "the provider does not have it" in job.error_message


def test_a_worker_that_dies_while_it_looks_up_the_last_attempt_gets_no_further_one(
    by_postmark: Postmark,
) -> None:
    job = lost_in_its_last_attempt(sent())
    EmailJob.objects.claim(1, worker="dead", lease_seconds=30, suspects=True)
    EmailJob.objects.rescue(dead=["dead"])
    assert (fresh(job).status, fresh(job).attempts) == ("failed", 9)


def test_a_mail_that_was_not_handed_over_in_the_last_attempt_has_failed_at_once(
    by_postmark: Postmark,
) -> None:
    job = sent()
    EmailJob.objects.filter(pk=job.pk).update(attempts=job.max_attempts - 1)
    EmailJob.objects.claim(1, worker="dead", lease_seconds=30)
    EmailJob.objects.rescue(dead=["dead"])
    assert fresh(job).status == "failed"


def test_the_last_look_up_waits_for_a_provider_that_is_down_but_not_for_ever(
    by_postmark: Postmark,
) -> None:
    job = lost_in_its_last_attempt(sent())
    by_postmark.stop()
    job = attempt(job)
    assert (job.status, job.attempts) == ("pending", 8)
    assert 50 < waits(job) <= 60
    assert "It may have this mail" in job.attempt_log[-1]["message"]

    forget_the_hand_over(job, seconds=2 * 3600 + 1)
    job = attempt(job)

    assert job.status == "failed"
    assert "cannot be reached" in job.error_message
    assert "nobody knows whether it was sent" in job.error_message


def in_its_last_attempt(**options: Any) -> EmailJob:
    job = sent(**options)
    EmailJob.objects.filter(pk=job.pk).update(attempts=job.max_attempts - 1)
    return job


NO_ANSWERS = [
    *(Response(status=status) for status in (500, 502, 503, 504)),
    problem(701, "Parameter 'count' is wrong."),
    answer({}, status=429),
    answer({"what": "another server's page"}),
]


@pytest.mark.parametrize("response", NO_ANSWERS)
def test_a_search_that_says_nothing_of_the_mail_decides_nothing(
    by_postmark: Postmark, response: Response
) -> None:
    by_postmark.searches = [response]
    job = sent()
    forget_the_hand_over(job)
    job = attempt(job)
    assert (job.status, job.attempts, by_postmark.mails) == ("pending", 1, [])
    assert attempt(job).status == "completed"
    assert len(by_postmark.mails) == 1


@pytest.mark.parametrize("response", NO_ANSWERS)
def test_a_last_search_that_says_nothing_of_the_mail_is_made_again(
    by_postmark: Postmark, response: Response
) -> None:
    by_postmark.searches = [response]
    job = sent()
    by_postmark.take({"Metadata": {"jobid": str(job.pk)}, "MessageStream": "outbound"})
    job = attempt(lost_in_its_last_attempt(job))
    assert (job.status, job.attempts) == ("pending", 8)
    assert 50 < waits(job) <= 60
    assert (attempt(job).status, len(by_postmark.mails)) == ("completed", 1)


def test_a_search_whose_answer_is_lost_is_made_again(
    by_postmark: Postmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = lost_in_its_last_attempt(sent())
    monkeypatch.setattr("jobs.postmark.TIMEOUTS", (5, 0.2))
    monkeypatch.setattr(by_postmark, "_search", lambda _request: by_postmark.released.wait(60))
    by_postmark.stop()
    by_postmark.released.clear()
    by_postmark.start()
    job = attempt(job)
    assert (job.status, job.attempts) == ("pending", 8)
    assert "ReadTimeout" in job.attempt_log[-1]["message"]


@pytest.mark.parametrize(("told", "wait"), [("7", 60), ("90", 90), ("86400", 7140)])
def test_the_last_look_up_comes_back_when_it_is_told_to_and_in_time(
    by_postmark: Postmark, told: str, wait: float
) -> None:
    by_postmark.searches = [answer({}, status=503, **{"Retry-After": told})]
    job = attempt(lost_in_its_last_attempt(sent()))
    assert job.status == "pending"
    assert wait - 5 < waits(job) <= wait


@pytest.mark.parametrize("has_it", [True, False])
def test_a_last_attempt_whose_answer_was_lost_asks_before_it_gives_up(
    by_postmark: Postmark, monkeypatch: pytest.MonkeyPatch, has_it: bool
) -> None:
    monkeypatch.setattr("jobs.postmark.TIMEOUTS", (5, 0.2))
    job = in_its_last_attempt(headers={"Expires": format_datetime(NEXT_YEAR)})
    if has_it:
        by_postmark.loses_answers = True
    else:
        by_postmark.next = [Response(status=502)]

    job = attempt(job)

    assert (job.status, job.attempts) == ("pending", 8)
    assert 15 < waits(job) <= 20
    assert job.erased_at is None
    for _ in range(3):
        # However often nobody can say whether it is there, it is not sent again.
        by_postmark.searches = [Response(status=503)]
        job = attempt(job)
        assert (job.status, job.attempts, job.erased_at) == ("pending", 8, None)
    forget_the_hand_over(job)
    job = attempt(job)
    assert job.status == ("completed" if has_it else "failed")
    assert by_postmark.asked.count(("POST", "/email")) == 1
    if not has_it:
        assert "In the end the provider does not have it" in job.error_message


def test_a_last_attempt_that_could_not_ask_before_it_sends_is_still_to_come(
    by_postmark: Postmark,
) -> None:
    """It has sent nothing, so it is handed back, and does so when the search says that it may."""
    job = in_its_last_attempt()
    forget_the_hand_over(job)
    by_postmark.searches = [Response(status=503)]
    job = attempt(job)
    assert (job.status, job.attempts) == ("pending", 7)
    job = attempt(job)
    assert (job.status, job.attempts, len(by_postmark.mails)) == ("completed", 8, 1)


def test_some_who_have_it_do_not_hide_that_the_last_answer_was_lost(
    by_postmark: Postmark,
) -> None:
    """As when the mail began by SMTP, where a server took it for some of them."""
    job = in_its_last_attempt(cc=["bob@example.org"])
    EmailJob.objects.filter(pk=job.pk).update(accepted=["bob@example.org"])
    by_postmark.next = [Response(status=502)]
    job = attempt(job)
    assert (job.status, job.attempts, job.refused) == ("pending", 8, {})


def test_who_lost_the_claim_sends_nothing(by_postmark: Postmark) -> None:
    from jobs.engine.execution import Run, execute
    from jobs.engine.finishing import write

    job = sent()
    (held,) = EmailJob.objects.claim(1, worker="slow", lease_seconds=30)
    EmailJob.objects.rescue(dead=["slow"])
    write(execute(Run(held, lease_ends=float("inf"))))
    assert by_postmark.mails == []
    row = fresh(job)
    assert (row.status, row.attempts) == ("pending", 1)
    assert [line["outcome"] for line in row.attempt_log] == ["worker lost"]


# A token that Postmark does not accept.


@pytest.fixture
def refused(by_postmark: Postmark, caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """A Postmark that does not know our token; returns what was said loudly of it."""
    by_postmark.token = "another"
    caplog.set_level(logging.INFO, "jobs")

    def loud() -> list[str]:
        return [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]

    return loud


def test_a_refused_token_pauses_all_mail_and_burns_none(
    refused: Callable[[], list[str]], by_postmark: Postmark
) -> None:
    jobs = [sent() for _ in range(3)]
    for job in jobs:
        attempt(job)
    for job in map(fresh, jobs):
        assert (job.status, job.attempts) == ("pending", 0)
        assert [line["outcome"] for line in job.attempt_log] == ["snoozed"]
    (row,) = Pause.objects.all()
    assert (row.kind, row.reason) == ("email", "provider")
    assert "does not accept POSTMARK_SERVER_TOKEN" in row.message
    assert TOKEN not in row.message
    assert len(refused()) == 1
    assert TaskJob.objects.filter(task="jobs.provider.probe").count() == 1


REFUSES_ALL = [
    problem(400, "The 'From' address you supplied is not a Sender Signature."),
    problem(401, "Sender signature not confirmed."),
    problem(405, "Not allowed to send: no credits."),
    problem(412, "Your account is pending approval."),
    problem(413, "Account may not send."),
    problem(1235, "The stream provided: 'news' does not exist on this server."),
    *(answer({}, status=status) for status in (402, 403, 404)),
]


@pytest.mark.parametrize("response", REFUSES_ALL)
def test_what_no_single_mail_can_be_blamed_for_pauses_all_and_burns_none(
    by_postmark: Postmark, response: Response
) -> None:
    by_postmark.next = [response]
    job = attempt(sent())
    assert (job.status, job.attempts, job.handed_over_at) == ("pending", 0, None)
    (row,) = Pause.objects.all()
    assert (row.kind, row.reason) == ("email", "provider")
    assert str((response.get_json() or {}).get("ErrorCode", response.status_code)) in row.message
    resume("email", reason=provider.REASON, using="default")
    assert attempt(job).status == "completed"


def test_a_sender_of_one_mail_that_is_refused_stops_no_other_mail(by_postmark: Postmark) -> None:
    by_postmark.next = [problem(400, "The 'From' address is not a Sender Signature.")]
    job = attempt(sent(from_email="else@example.org"))
    assert (job.status, job.attempts) == ("failed", 1)
    assert not Pause.objects.exists()


def probe() -> TaskJob:
    """The one task that asks the provider, after it asked once more."""
    TaskJob.objects.future().update(due=True)
    for job in TaskJob.objects.claim(1, worker="test", lease_seconds=30):
        from jobs.engine.execution import Run, execute
        from jobs.engine.finishing import write

        write(execute(Run(job, lease_ends=float("inf"))))
    return TaskJob.objects.get(task="jobs.provider.probe")


@pytest.mark.usefixtures("refused")
def test_a_probe_each_minute_lifts_the_pause_when_the_token_works(by_postmark: Postmark) -> None:
    job = attempt(sent())
    for _ in range(3):
        task = probe()
        assert (task.status, task.attempts) == ("pending", 0)
        assert timedelta(seconds=58) < task.run_at - datetime.now(UTC) < timedelta(seconds=61)
    assert Pause.objects.exists()

    by_postmark.token = TOKEN

    assert probe().status == "completed"
    assert not Pause.objects.exists()
    assert attempt(job).status == "completed"
    assert [one for one in by_postmark.asked if one[1] == "/server"] == [("GET", "/server")] * 4


@pytest.mark.usefixtures("refused")
def test_a_probe_leaves_the_operators_pause(by_postmark: Postmark) -> None:
    pause("email", message="moving house", using="default")
    attempt(sent())
    assert Pause.objects.count() == 2
    by_postmark.token = TOKEN
    probe()
    assert [row.reason for row in Pause.objects.all()] == [Pause.OPERATOR]


@pytest.mark.usefixtures("refused")
def test_a_probe_ends_when_a_person_lifted_the_pause() -> None:
    attempt(sent())
    resume("email", reason=provider.REASON, using="default")
    assert probe().status == "completed"


@pytest.mark.usefixtures("refused")
def test_a_pause_that_is_made_while_a_probe_ends_has_its_own_probe(by_postmark: Postmark) -> None:
    job = attempt(sent())
    TaskJob.objects.future().update(due=True)
    (running,) = TaskJob.objects.claim(1, worker="test", lease_seconds=30)
    by_postmark.token = TOKEN
    assert provider.probe() == "Mail goes on."
    by_postmark.token = "another"
    attempt(job)
    assert Pause.objects.filter(reason=provider.REASON).exists()
    running.complete()
    assert TaskJob.objects.filter(status="pending", task="jobs.provider.probe").count() == 1


@pytest.mark.usefixtures("refused")
def test_a_pause_without_a_probe_gets_a_new_one(by_postmark: Postmark) -> None:
    make_built_in_schedules(using=connection.alias)
    schedule = Schedule.objects.get(name="mail-pauses")
    assert schedule.columns["task"] == "jobs.provider.watch"
    assert provider.watch() == "Mail is not paused."
    attempt(sent())
    probes = TaskJob.objects.filter(task="jobs.provider.probe")
    assert provider.watch() == "A task asks the provider."
    assert probes.count() == 1
    probes.get().cancel()
    provider.watch()
    by_postmark.token = TOKEN
    assert probes.filter(status="pending").count() == 1
    TaskJob.objects.future().update(due=True)
    run_pending(TaskJob)
    assert not Pause.objects.exists()


@pytest.mark.usefixtures("refused")
def test_a_probe_that_meets_any_trouble_asks_again(settings: Any) -> None:
    attempt(sent())
    settings.MAILERS = queued({"BACKEND": "nowhere.Backend"})
    assert (probe().status, probe().attempts) == ("pending", 0)
    assert Pause.objects.exists()


def test_the_token_is_nowhere_in_what_is_kept(by_postmark: Postmark) -> None:
    """Neither in the row nor in the attempt log, whatever goes wrong."""
    job = sent()
    for trouble in (answer({}, status=500), problem(10, "no", status=401), None):
        if trouble is None:
            by_postmark.stop()
        by_postmark.next = [trouble] if trouble else []
        EmailJob.objects.filter(pk=job.pk).update(handed_over_at=None)
        job = attempt(job)
    assert len(job.attempt_log) == 3
    kept = repr(EmailJob.objects.filter(pk=job.pk).values().get())
    assert TOKEN not in kept
    assert TOKEN not in repr(list(Pause.objects.values()))
