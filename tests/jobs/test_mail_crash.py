"""Mail by real workers that die, and past providers that are slow or down."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.db.models.functions import Now

from jobs.engine.task_job import TaskJob
from jobs.models import EmailJob
from tests.jobs.mailing import fresh, sent
from tests.postmark import TOKEN, Postmark
from tests.waiting import wait_for
from tests.workers import ROOT, WorkerProcess, has_status, test_database_url

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., WorkerProcess]
WRONG = {"PYTHONPATH": os.pathsep.join([str(ROOT / "tests" / "wrong_clock"), str(ROOT)])}
"""Five minutes late."""


@pytest.fixture
def mail_worker(by_postmark: Postmark, worker_process: Start) -> Callable[..., WorkerProcess]:
    """Start a real worker for mail that delivers to the local Postmark."""

    def start(*arguments: str, **environment: str) -> WorkerProcess:
        given = {**by_postmark.environment, **environment}
        return worker_process("--kinds", "email", *arguments, **given)

    return start


def completed() -> int:
    return EmailJob.objects.filter(status="completed").count()


def test_a_worker_that_dies_between_send_and_mark_mails_once(
    by_postmark: Postmark, mail_worker: Start
) -> None:
    by_postmark.loses_answers = True
    job = sent(subject="Once")
    first = mail_worker().wait_ready()
    wait_for(lambda: by_postmark.sent("Once"))
    first.kill()
    by_postmark.loses_answers = False
    by_postmark.released.set()

    mail_worker()
    wait_for(has_status(job, "completed"), seconds=30)

    job = fresh(job)
    (mail,) = by_postmark.sent("Once")
    assert job.attempts == 2
    assert [line["outcome"] for line in job.attempt_log] == ["worker lost"]
    assert job.provider_message_id == mail["MessageID"]
    assert {"Name": "Message-ID", "Value": job.message_id} in mail["Headers"]


def test_a_worker_that_dies_before_it_sends_still_mails_once_with_the_same_id(
    by_postmark: Postmark, mail_worker: Start
) -> None:
    """The crash comes after the row says that the mail leaves, and before it does."""
    job = sent(subject="Once")
    message_id = job.message_id
    (held,) = EmailJob.objects.claim(1, worker="dead", lease_seconds=30)
    held.note(handed_over_at=Now())
    EmailJob.objects.rescue(dead=["dead"])

    mail_worker()
    wait_for(has_status(job, "completed"), seconds=30)

    (mail,) = by_postmark.sent("Once")
    assert {"Name": "Message-ID", "Value": message_id} in mail["Headers"]


def test_mails_wait_while_postmark_is_down_and_go_once_each_when_it_is_back(
    by_postmark: Postmark, mail_worker: Start
) -> None:
    by_postmark.stop()
    jobs = [sent(subject=f"Mail {number}") for number in range(50)]
    # A smaller base than the usual one: the rule is the same, and nobody waits for minutes.
    mail_worker(JOBS_BACKOFF_BASE="1.5")
    wait_for(lambda: not EmailJob.objects.filter(attempts__lt=2).exists(), seconds=60)
    assert completed() == 0

    by_postmark.start()
    wait_for(lambda: completed() == len(jobs), seconds=60)

    assert sorted(mail["Subject"] for mail in by_postmark.mails) == sorted(
        job.subject for job in jobs
    )


def test_the_waits_are_five_twenty_five_and_a_hundred_and_twenty_five_seconds(
    by_postmark: Postmark,
) -> None:
    from datetime import datetime

    from jobs.engine.testing import run_pending

    by_postmark.stop()
    job = sent()
    for wait in (5, 25, 125, 625, 3125, 3600, 3600):
        run_pending(EmailJob)
        found: Any = EmailJob.objects.annotate(now=Now()).get(pk=job.pk)
        assert isinstance(found.now, datetime)
        left = (found.run_at - found.now).total_seconds()
        assert wait * 0.9 - 2 <= left <= wait * 1.1, left
        EmailJob.objects.future().update(due=True)
    run_pending(EmailJob)
    assert (fresh(job).status, fresh(job).attempts) == ("failed", 8)


def test_a_slow_postmark_makes_nobody_wait_who_sends(
    by_postmark: Postmark, mail_worker: Start
) -> None:
    by_postmark.seconds = 3
    mail_worker().wait_ready()
    began = time.monotonic()
    job = sent(subject="Slow")
    assert time.monotonic() - began < 0.5
    wait_for(has_status(job, "completed"))
    assert len(by_postmark.sent("Slow")) == 1
    assert fresh(job).attempts == 1


def test_an_urgent_mail_passes_five_thousand_that_wait(
    by_postmark: Postmark, mail_worker: Start
) -> None:
    by_postmark.seconds = 0.1
    rows = ({"to": ["ada@example.org"], "subject": "Campaign", "text": "x"} for _ in range(5000))
    EmailJob.objects.enqueue_many(rows)
    mail_worker().wait_ready()
    wait_for(lambda: len(by_postmark.mails) > 50)

    asked = time.time()
    sent(subject="Sign in", using="urgent")
    (urgent,) = wait_for(lambda: by_postmark.sent("Sign in"))

    assert urgent["at"] - asked < 1
    assert len(by_postmark.mails) < 5000


def test_an_urgent_mail_waits_for_no_seat_that_a_slow_provider_holds(
    by_postmark: Postmark, mail_worker: Start
) -> None:
    by_postmark.seconds = 10
    EmailJob.objects.enqueue_many([{"to": ["ada@example.org"], "text": "x"}] * 50)
    mail_worker().wait_ready()
    wait_for(lambda: len(by_postmark.asked) == 6)

    by_postmark.seconds = 0
    asked = time.time()
    sent(subject="Sign in", using="urgent")
    (urgent,) = wait_for(lambda: by_postmark.sent("Sign in"))

    assert urgent["at"] - asked < 1
    assert len(by_postmark.mails) == 1


def test_an_urgent_mail_whose_worker_died_waits_for_no_seat_either(
    by_postmark: Postmark, mail_worker: Start
) -> None:
    by_postmark.seconds = 30
    EmailJob.objects.enqueue_many([{"to": ["ada@example.org"], "text": "x"}] * 50)
    mail_worker().wait_ready()
    wait_for(lambda: len(by_postmark.asked) == 6)

    by_postmark.seconds = 0
    with transaction.atomic():
        job = sent(subject="Sign in", using="urgent")
        EmailJob.objects.filter(pk=job.pk).update(suspect=True)
    wait_for(lambda: by_postmark.sent("Sign in"))

    assert len(by_postmark.mails) == 1


def test_a_refused_token_pauses_every_worker_and_no_mail_is_lost(
    by_postmark: Postmark, mail_worker: Start
) -> None:
    from jobs.engine.kinds import Pause
    from jobs.provider import probe

    by_postmark.token = "another"
    jobs = [sent(subject=f"Mail {number}") for number in range(20)]
    workers = [mail_worker().wait_ready() for _ in range(2)]
    wait_for(lambda: Pause.objects.exists())
    # A mail that comes now meets the pause, and no provider.
    late = sent(subject="Late")
    wait_for(lambda: not EmailJob.objects.filter(status="running").exists())

    by_postmark.token = TOKEN
    assert probe() == "Mail goes on."
    wait_for(lambda: completed() == 21)

    assert fresh(late).attempts == 1
    assert {fresh(job).attempts for job in jobs} == {1}
    loud = [line for worker in workers for line in worker.log if "ERROR" in line]
    assert len(loud) == 1 and "POSTMARK_SERVER_TOKEN" in loud[0]
    assert not any(TOKEN in line for worker in workers for line in worker.log)


def test_a_worker_whose_clock_is_wrong_has_the_provider_asked_in_a_minute(
    by_postmark: Postmark, mail_worker: Start
) -> None:
    by_postmark.token = "another"
    sent()
    mail_worker(**WRONG)
    probe: Any = wait_for(lambda: TaskJob.objects.annotate(now=Now()).first())
    assert timedelta(seconds=30) < probe.run_at - probe.now <= timedelta(seconds=60)


def test_a_database_of_the_jobs_own_holds_the_mails(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "forge.settings",
        "DATABASE_URL": test_database_url(),
        "JOBS_DATABASE_URL": f"sqlite:///{tmp_path / 'jobs.sqlite3'}",
        "FORGE_DATA_DIR": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }

    def manage(*arguments: str) -> str:
        command = [sys.executable, str(ROOT / "manage.py"), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    manage("migrate", "--database", "jobs", "-v0")
    send = """
from django.core.mail import EmailMessage
from django.db import transaction
def mail(subject):
    EmailMessage(subject, "text", to=["ada@example.org"], attachments=[("a", b"x", "image/png")]).send()
mail("One")
with transaction.atomic():
    mail("Two")
try:
    with transaction.atomic():
        mail("Three")
        raise KeyError
except KeyError:
    pass
"""
    manage("shell", "-v0", "-c", send)
    printed = manage("runworker", "--burst")
    subjects = {line.rpartition(".eml: ")[2] for line in printed.splitlines()}
    assert {"One", "Two"} <= subjects and "Three" not in printed
    read = (
        "from jobs.models import EmailJob; import json;"
        "print(json.dumps(sorted(EmailJob.objects.values_list('subject', 'status'))))"
    )
    assert json.loads(manage("shell", "-v0", "-c", read)) == [
        ["One", "completed"],
        ["Two", "completed"],
    ]
    assert not EmailJob.objects.exists()
    assert len(list((tmp_path / "outbox").glob("*.eml"))) == 2
