"""A mailer that lets only so many of its mails leave in a minute."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.core.mail import InvalidMailer, mailers
from django.db import connection, transaction
from django.db.models.functions import Now

from jobs.engine.ageing import raise_ranks
from jobs.engine.execution import Run
from jobs.engine.retry import Snooze
from jobs.engine.testing import run_pending
from jobs.models import EmailJob, MailPace
from jobs.pacing import SECONDS_TO_ASK_AGAIN, plan
from tests.engine.test_claiming import in_threads
from tests.jobs.mailing import QUEUE, fresh, mail, sent
from tests.postmark import Postmark
from tests.waiting import wait_for
from tests.workers import WorkerProcess


@pytest.fixture
def campaign(settings: Any, by_postmark: Postmark) -> Callable[..., None]:
    """A mailer `campaign` with this pace, beside those that Forge has."""

    def paced(per_minute: int) -> None:
        slow = {"BACKEND": QUEUE, "OPTIONS": {"per_minute": per_minute}}
        settings.MAILERS = {**settings.MAILERS, "campaign": slow}

    return paced


def attempt(job: EmailJob, *, late: float = 0) -> EmailJob:
    """The job after one attempt, in its moment or so many seconds after it."""
    moment = Now() - timedelta(seconds=late)
    waiting = EmailJob.objects.filter(pk=job.pk)
    waiting.filter(leaves_at__isnull=False).update(leaves_at=moment)
    waiting.update(due=True, run_at=moment)
    run_pending(EmailJob)
    return fresh(job)


@pytest.mark.django_db
def test_the_first_mail_leaves_at_once_and_the_next_ones_one_by_one(
    campaign: Callable[..., None], by_postmark: Postmark
) -> None:
    campaign(per_minute=6)
    jobs = [sent(subject=f"{number}", using="campaign") for number in range(4)]
    run_pending(EmailJob)

    assert [one["Subject"] for one in by_postmark.mails] == ["0"]
    waiting = [fresh(job) for job in jobs[1:]]
    assert [(job.status, job.attempts) for job in waiting] == [("pending", 0)] * 3
    moments = [job.leaves_at for job in waiting]
    assert all(8 < gap < 12 for gap in gaps(moments))
    assert "6 mails leave in a minute" in waiting[0].attempt_log[0]["message"]


def gaps(moments: list[Any]) -> list[float]:
    return [(later - earlier).total_seconds() for earlier, later in pairwise(moments)]


@pytest.mark.django_db
def test_a_mail_leaves_in_its_moment_and_not_long_after(
    campaign: Callable[..., None], by_postmark: Postmark
) -> None:
    campaign(per_minute=1)
    _first, second, third = [sent(subject=f"{n}", using="campaign") for n in range(3)]
    run_pending(EmailJob)

    third = attempt(third, late=70)
    assert third.status == "pending"
    assert third.leaves_at is not None

    assert attempt(second, late=50).status == "completed"
    assert fresh(second).leaves_at is None


@pytest.mark.django_db
def test_a_mail_that_is_tried_again_waits_for_another_moment(
    campaign: Callable[..., None], by_postmark: Postmark
) -> None:
    campaign(per_minute=1)
    job = sent(using="campaign")
    by_postmark.stop()
    job = attempt(job)
    assert (job.status, job.attempts, job.leaves_at) == ("pending", 1, None)
    by_postmark.start()

    job = attempt(job)

    assert by_postmark.mails == []
    assert (job.attempts, job.leaves_at is None) == (1, False)
    assert attempt(job).status == "completed"


@pytest.mark.django_db
def test_other_mailers_have_no_part_in_it(
    campaign: Callable[..., None], by_postmark: Postmark
) -> None:
    campaign(per_minute=1)
    for using in ("campaign", "campaign", "default", "urgent", "default"):
        sent(subject=using, using=using)
    run_pending(EmailJob)
    assert sorted(one["Subject"] for one in by_postmark.mails) == [
        *("campaign", "default", "default", "urgent"),
    ]


@pytest.mark.django_db
def test_mails_of_a_mailer_that_is_gone_have_no_pace(
    settings: Any, campaign: Callable[..., None], by_postmark: Postmark
) -> None:
    campaign(per_minute=1)
    for _ in range(3):
        sent(using="campaign")
    del settings.MAILERS["campaign"]
    settings.MAILERS = dict(settings.MAILERS)
    run_pending(EmailJob)
    assert len(by_postmark.mails) == 3


@pytest.mark.django_db(transaction=True)
def test_each_moment_is_given_once_whoever_asks() -> None:
    EmailJob.objects.enqueue_many([{"to": ["a@example.org"], "mailer": "campaign"}] * 80)
    running = queue.SimpleQueue[EmailJob]()
    for job in EmailJob.objects.claim(80, worker="w", lease_seconds=60):
        running.put(job)

    def planned(job: EmailJob) -> float:
        while (wait := plan(job, per_minute=6)) == SECONDS_TO_ASK_AGAIN:
            continue
        return wait

    waits = in_threads(8, lambda: [planned(running.get()) for _ in range(10)])
    assert sorted(wait for some in waits for wait in some)[0] == 0
    moments = EmailJob.objects.exclude(leaves_at=None).order_by("leaves_at")
    assert len(moments) == 79
    assert all(9.9 < gap < 10.1 for gap in gaps([job.leaves_at for job in moments]))


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_nobody_waits_for_one_that_is_frozen_while_it_plans() -> None:
    rows = [{"to": ["a@example.org"], "mailer": "campaign"}] * 3
    EmailJob.objects.enqueue_many(rows)
    EmailJob.objects.update(run_at=Now() - timedelta(hours=1))
    EmailJob.objects.enqueue(to=["a@example.org"], priority=50)
    (job,) = EmailJob.objects.filter(mailer="").claim(1, worker="w", lease_seconds=60)
    EmailJob.objects.enqueue(to=["a@example.org"], priority=50)
    EmailJob.objects.filter(pk=job.pk).update(mailer="campaign")
    job.mailer = "campaign"
    held, thawed = threading.Event(), threading.Event()

    def freeze() -> None:
        with transaction.atomic():
            MailPace.hold("campaign", using="default")
            EmailJob.objects.filter(mailer="campaign", status="pending").update(tags=["held"])
            held.set()
            thawed.wait(20)
        connection.close()

    # Its row is there already, as after the first mail.
    MailPace.objects.create(mailer="campaign")
    frozen = threading.Thread(target=freeze)
    frozen.start()
    try:
        assert held.wait(20)
        began = time.monotonic()
        assert plan(job, per_minute=6) == SECONDS_TO_ASK_AGAIN
        assert raise_ranks(EmailJob) == 0
        assert time.monotonic() - began < 10
    finally:
        thawed.set()
        frozen.join()
    assert raise_ranks(EmailJob) > 0


@pytest.mark.django_db
def test_mails_behind_one_that_waits_get_their_moments_with_it(
    campaign: Callable[..., None], by_postmark: Postmark
) -> None:
    campaign(per_minute=60)
    jobs = [sent(using="campaign") for _ in range(20)]
    between = sent(subject="between")
    EmailJob.objects.filter(pk=between.pk).update(run_at=Now() - timedelta(hours=1))
    for job in EmailJob.objects.claim(3, worker="w", lease_seconds=60):
        with contextlib.suppress(Snooze):
            job.perform(Run(job, lease_ends=float("inf")))
    assert EmailJob.objects.future().count() == 18
    planned = [job.leaves_at for job in map(fresh, jobs[1:])]
    assert all(0.9 < gap < 1.1 for gap in gaps(planned))
    assert len(by_postmark.mails) == 2


@pytest.mark.django_db
def test_the_moments_of_cancelled_mails_are_free_again(
    campaign: Callable[..., None], by_postmark: Postmark
) -> None:
    campaign(per_minute=1)
    jobs = [sent(using="campaign") for _ in range(30)]
    run_pending(EmailJob)
    assert EmailJob.objects.future().count() == 29
    for job in map(fresh, jobs[1:]):
        job.cancel()

    late = sent(using="campaign")
    run_pending(EmailJob)

    found: Any = EmailJob.objects.annotate(now=Now()).get(pk=late.pk)
    assert 50 < (found.leaves_at - found.now).total_seconds() <= 60
    # Where some are left, theirs are kept.
    behind = sent(using="campaign")
    run_pending(EmailJob)
    assert 59 < gaps([fresh(late).leaves_at, fresh(behind).leaves_at])[0] < 61


@pytest.mark.django_db
@pytest.mark.parametrize("per_minute", [0, -1, 60_001, 1.5, "10", True])
def test_a_pace_is_a_whole_number_of_mails(settings: Any, per_minute: Any) -> None:
    settings.MAILERS = {"default": {"BACKEND": QUEUE, "OPTIONS": {"per_minute": per_minute}}}
    with pytest.raises(InvalidMailer, match=r"per_minute.*1 to 60000"):
        mailers["default"].send_messages([mail()])


@pytest.mark.django_db(transaction=True)
def test_a_paced_mail_gets_its_turn_in_a_busy_queue(
    campaign: Callable[..., None],
    by_postmark: Postmark,
    worker_process: Callable[..., WorkerProcess],
) -> None:
    campaign(per_minute=600)
    by_postmark.seconds = 0.3
    rows = {"to": ["ada@example.org"], "text": "x"}
    EmailJob.objects.enqueue_many([rows | {"subject": "Campaign", "mailer": "campaign"}] * 30)
    EmailJob.objects.enqueue_many([rows | {"subject": "Other"}] * 2000)
    worker_process("--kinds", "email", **by_postmark.environment)

    wait_for(lambda: len(by_postmark.sent("Campaign")) == 30, seconds=60)

    assert 0 < len(by_postmark.sent("Other")) < 1000
    assert not EmailJob.objects.filter(attempts__gt=1).exists()


@pytest.mark.django_db(transaction=True)
def test_a_campaign_keeps_its_pace_and_an_urgent_mail_passes_it(
    settings: Any,
    campaign: Callable[..., None],
    by_postmark: Postmark,
    worker_process: Callable[..., WorkerProcess],
) -> None:
    campaign(per_minute=600)
    EmailJob.objects.enqueue_many(
        {"to": ["ada@example.org"], "subject": "Campaign", "text": "x", "mailer": "campaign"}
        for _ in range(5000)
    )
    # In the workers' own settings the mailer has this pace too.
    for _ in range(2):
        worker_process("--kinds", "email", **by_postmark.environment).wait_ready()
    wait_for(lambda: len(by_postmark.mails) > 10, seconds=30)

    asked = time.time()
    sent(subject="Sign in", using="urgent")
    (urgent,) = wait_for(lambda: by_postmark.sent("Sign in"))
    assert urgent["at"] - asked < 1

    wait_for(lambda: len(by_postmark.sent("Campaign")) > 100, seconds=60)
    left = [one["at"] for one in by_postmark.sent("Campaign")]
    # Ten a second, and those that are late by a second; or two, until they are there.
    assert max(sum(0 <= other - one < 5 for other in left) for one in left) <= 70
    assert len(left) <= 10 * (left[-1] - left[0] + 2)
    assert EmailJob.objects.filter(attempts__gt=1).count() == 0
