"""For the tests of projects that use the engine: run jobs in the test itself, and ask for them.

    def test_an_order_sends_its_mail(client):
        client.post("/orders", …)
        assert_enqueued(EmailJob, to=["ada@example.org"])
        run_pending()

All of it works inside the transaction of a TestCase, without threads.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from django.db import connections, transaction

from jobs.engine.conf import config
from jobs.engine.enqueueing import wanted
from jobs.engine.execution import Outcome, Run, execute
from jobs.engine.finishing import write
from jobs.engine.identity import this_worker
from jobs.engine.lifecycle import Job

MOST_ROUNDS = 1000
MOST_SNOOZES = 20
"""How often a job may run beyond its attempts."""


def run_pending(*kinds: type[Job], future: bool = False) -> list[Job]:
    """Run what is due and what that enqueues, here and now; returns the jobs as they ended.

    `future` brings what waits for a later time, retries too, to now; it ends with the last attempt.
    Raises RuntimeError when jobs go on making jobs, and when one puts itself off again and again.

    In an open transaction, such as that of a TestCase, a handler whose database error spoiled the
    transaction is undone to its beginning; a worker, who has none open, would keep what it did.
    """
    ended: list[Job] = []
    runs: Counter[Any] = Counter()
    for _ in range(MOST_ROUNDS):
        jobs = [job for kind in kinds or Job.kinds() for job in _claim(kind, future=future)]
        if not jobs:
            return ended
        for job in jobs:
            _count(job, runs)
            run = Run(job, lease_ends=time.monotonic() + config().lease_seconds)
            outcome = _execute(run)
            run.progress.write()
            write(outcome)
            job.refresh_from_db()
            ended.append(job)
    raise RuntimeError(f"Jobs made jobs for {MOST_ROUNDS} rounds: {ended[-1]}")


def _count(job: Job, runs: Counter[Any]) -> None:
    runs[job.pk] += 1
    if runs[job.pk] > job.max_attempts + MOST_SNOOZES:
        raise RuntimeError(
            f"{job} ran {runs[job.pk] - 1} times and put itself off each time. What it waits for "
            "does not come by running jobs, so run_pending cannot end it."
        )


class _Spoiled(Exception):
    """The handler left an open transaction in which the database takes no statement more."""


def _execute(run: Run) -> Outcome:
    """Execute between savepoints of the transactions that are open."""
    opened = [c for c in connections.all(initialized_only=True) if c.in_atomic_block]
    with contextlib.suppress(_Spoiled), contextlib.ExitStack() as savepoints:
        for connection in opened:
            savepoints.enter_context(transaction.atomic(using=connection.alias))
        outcome = execute(run)
        if any(c.needs_rollback or not c.is_usable() for c in opened):
            raise _Spoiled
    return outcome


def _claim(kind: type[Job], *, future: bool) -> list[Job]:
    if future:
        kind.objects.future().order_by().update(due=True)
    options: dict[str, Any] = {"worker": this_worker(), "lease_seconds": config().lease_seconds}
    return [
        *kind.objects.claim(100, **options),
        *kind.objects.claim(100, **options, suspects=True),
    ]


def assert_enqueued(kind: type[Job], *, count: int | None = None, **columns: Any) -> list[Job]:
    """The pending jobs with these columns; AssertionError when there are none, or not `count`."""
    jobs: list[Job] = list(kind.objects.filter(status="pending", **columns).order_by("id"))
    if (count is not None and len(jobs) != count) or (count is None and not jobs):
        there = [job.__dict__ for job in kind.objects.filter(status="pending")]
        wanted_text = "at least one" if count is None else str(count)
        raise AssertionError(f"{wanted_text} pending {kind.kind} with {columns}, but found {there}")
    return jobs


def assert_not_enqueued(kind: type[Job], **columns: Any) -> None:
    """AssertionError when a pending job has these columns."""
    assert_enqueued(kind, count=0, **columns)


@contextlib.contextmanager
def inline(*kinds: type[Job]) -> Iterator[None]:
    """Run each job as soon as the transaction that enqueued it commits.

    In a TestCase, whose transaction never commits, use its `captureOnCommitCallbacks(execute=True)`.
    """
    chosen = {kind.kind for kind in kinds or Job.kinds()}

    def on_wanted(*, sender: type[Job], kind: str, using: str, **_kwargs: Any) -> None:
        if kind in chosen:
            transaction.on_commit(lambda: run_pending(sender), using=using)

    wanted.connect(on_wanted, weak=False)
    try:
        yield
    finally:
        wanted.disconnect(on_wanted)
