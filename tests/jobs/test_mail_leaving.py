"""The moment in which a mail leaves: who may still stop it, and what is written before and after."""

from collections.abc import Callable
from datetime import timedelta
from email.utils import format_datetime
from typing import Any, ClassVar

import pytest
from django.core.mail.backends.base import BaseEmailBackend
from django.db import connection, connections
from django.db.models.functions import Now
from django.utils import timezone

from jobs.delivery import Receipt, Unauthorized
from jobs.engine.execution import Outcome, Run, execute
from jobs.engine.finishing import write
from jobs.engine.retry import Permanent, Released
from jobs.handover import Handover
from jobs.models import EmailJob
from tests.jobs.mailing import fresh, queued, sent
from tests.outages import database_away

pytestmark = pytest.mark.django_db


class Provider(BaseEmailBackend):
    """Knows no mail; tests say what happens while it looks one up, and while it is handed one."""

    can_find = True
    while_it_looks: ClassVar[Callable[[str], None]]
    while_it_takes: ClassVar[Callable[[str], None]]
    mails: ClassVar[list[str]]

    def find(self, key: str) -> Receipt | None:
        type(self).while_it_looks(key)
        return None

    def deliver(self, message: Any, *, key: str) -> Receipt:
        self.mails.append(key)
        type(self).while_it_takes(key)
        return Receipt()

    def probe(self) -> None:
        pass


@pytest.fixture
def provider(settings: Any) -> type[Provider]:
    settings.MAILERS = queued({"BACKEND": f"{__name__}.Provider"})
    Provider.while_it_looks = Provider.while_it_takes = staticmethod(lambda _key: None)
    Provider.mails = []
    return Provider


def held(**options: Any) -> EmailJob:
    """A mail that a worker holds, and that an attempt before may have handed over."""
    job = sent(**options)
    EmailJob.objects.filter(pk=job.pk).update(handed_over_at=Now() - timedelta(minutes=1))
    (claimed,) = EmailJob.objects.claim(1, worker="w", lease_seconds=30)
    return claimed


def run(job: EmailJob) -> tuple[EmailJob, Outcome]:
    """The row after the attempt, and how that ended."""
    outcome = execute(Run(job, lease_ends=float("inf")))
    write(outcome)
    return fresh(job), outcome


def test_a_mail_leaves_after_a_look_up_that_knows_nothing_of_it(provider: type[Provider]) -> None:
    """So that the rules below are about what stops it."""
    job, _outcome = run(held())
    assert (job.status, provider.mails) == ("completed", [str(job.pk)])


def test_a_cancel_while_it_is_looked_up_stops_the_mail(provider: type[Provider]) -> None:
    provider.while_it_looks = staticmethod(lambda key: EmailJob.objects.get(pk=key).cancel())
    job, _outcome = run(held())
    assert (job.status, provider.mails) == ("cancelled", [])
    assert job.attempt_log[-1]["outcome"] == "cancelled"


def test_a_run_that_is_stopped_while_it_looks_up_sends_nothing(provider: type[Provider]) -> None:
    job = held()
    running = Run(job, lease_ends=float("inf"))
    provider.while_it_looks = staticmethod(lambda _key: running.stop(Released("leaving")))
    write(execute(running))
    row = fresh(job)
    assert (row.status, row.attempts, provider.mails) == ("pending", 0, [])


def test_a_mail_whose_time_passes_while_it_is_looked_up_does_not_leave(
    provider: type[Provider],
) -> None:
    def let_it_pass(key: str) -> None:
        EmailJob.objects.filter(pk=key).update(not_after=Now())

    provider.while_it_looks = staticmethod(let_it_pass)
    expires = format_datetime(timezone.now() + timedelta(hours=1))
    job, _outcome = run(held(headers={"Expires": expires}))
    assert (job.status, provider.mails) == ("failed", [])
    assert "not sent in time" in job.error_message
    assert job.erased_at is not None


def test_a_claim_that_is_lost_while_it_is_looked_up_is_told_from_a_cancel_and_from_its_time(
    provider: type[Provider],
) -> None:
    def lose(key: str) -> None:
        EmailJob.objects.rescue(dead=["w"])
        EmailJob.objects.filter(pk=key).update(not_after=Now(), cancel_requested_at=Now())

    provider.while_it_looks = staticmethod(lose)
    job, outcome = run(held())
    assert (job.status, job.attempts, provider.mails) == ("pending", 1, [])
    assert outcome.entry["error_class"] == "jobs.engine.lifecycle.LostClaim"


# A refusal that meets a database that is away.


@pytest.fixture
def impatient() -> Any:
    """This process does not wait long for a lock on SQLite."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout = 100")
    yield
    connections.close_all()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("refusal", [Permanent("dead address"), Unauthorized("who are you?")])
def test_a_refusal_means_the_same_when_it_cannot_be_written(
    provider: type[Provider], refusal: Exception
) -> None:
    away = database_away()

    def refuse(_key: str) -> None:
        away.__enter__()
        raise refusal

    provider.while_it_takes = staticmethod(refuse)
    job = held()
    running = Run(job, lease_ends=float("inf"))
    with pytest.raises(type(refusal), match=str(refusal)):
        try:
            Handover(job, running).perform()
        finally:
            away.__exit__(None, None, None)
    assert fresh(job).handed_over_at is not None
