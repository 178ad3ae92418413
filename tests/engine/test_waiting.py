"""`until_over`: the end of a job, told to whoever waits for it, at the cost of one reader."""

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db.backends.signals import connection_created

from jobs.engine.lifecycle import Job
from jobs.engine.models import TaskJob
from jobs.engine.waiting import until_over, wait_until_over
from jobs.engine.watching import UNREAD, News, hub
from jobs.engine.worker import Worker
from tests.kinds.models import Probe
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

FEW_MOMENTS = 1.5
"""Seconds: less than the look that is taken without any hint."""


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()


@pytest.fixture
def loops(transactional_db: None) -> Iterator[list[Loop]]:
    loops = [Loop() for _ in range(3)]
    yield loops
    for loop in loops:
        loop.close()
    wait_for(nobody_watches)


@pytest.fixture
def loop(loops: list[Loop]) -> Loop:
    return loops[0]


def nobody_watches() -> bool:
    names = {thread.name for thread in threading.enumerate()}
    return hub.all() == [] and names.isdisjoint({"jobs-live", "jobs-waker"})


def task() -> TaskJob:
    return TaskJob.objects.enqueue(task="operator.neg", payload={"args": [3]})


def claimed(job: Job) -> Any:
    (held,) = type(job).objects.claim(1, worker="test", lease_seconds=30)
    assert held.pk == job.pk
    return held


def failed(job: Job) -> None:
    held = claimed(job)
    held.fail(held.log_entry("failed", ended_at=held.started_at, message="No luck."))


def ended(job: Job, status: str) -> None:
    match status:
        case "completed":
            claimed(job).complete(-3)
        case "failed":
            failed(job)
        case "cancelled":
            job.cancel()


def watched_and_read(job: Job) -> bool:
    return any(one.pk == job.pk and one.shown is not UNREAD for one in hub.all())


# What they are told.


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_whoever_waits_is_told_of_the_end_with_the_whole_row(loop: Loop, status: str) -> None:
    job = task()
    waiting = loop.start(until_over(TaskJob, job.pk))
    wait_for(lambda: watched_and_read(job))
    assert not waiting.done()

    ended(job, status)

    told = waiting.result(20)
    assert told.status == status
    assert told.get_deferred_fields() == set()
    assert told == TaskJob.objects.get(pk=job.pk)
    assert told.result == (-3 if status == "completed" else None)


def test_a_job_that_is_over_already_is_returned_at_once(loop: Loop) -> None:
    job = task()
    ended(job, "cancelled")

    assert loop.start(until_over(TaskJob, job.pk)).result(FEW_MOMENTS).status == "cancelled"


def test_what_a_real_worker_did_is_told(loop: Loop, worker: Callable[..., Worker]) -> None:
    job = Probe.objects.enqueue(script="report")
    waiting = loop.start(until_over(Probe, job.pk, timeout=20))

    worker(Probe)

    assert waiting.result(20).lines == 1000


def test_the_end_is_told_within_a_moment(loop: Loop) -> None:
    delays = []
    for _ in range(5):
        held = claimed(task())
        waiting = loop.start(until_over(TaskJob, held.pk))
        told = threading.Event()
        waiting.add_done_callback(lambda _waiting, told=told: told.set())
        wait_for(lambda pk=held.pk: any(one.pk == pk for one in hub.all()))
        held.complete(None)
        began = time.monotonic()
        assert told.wait(20)
        delays.append(time.monotonic() - began)
    assert sorted(delays)[2] < FEW_MOMENTS


def test_a_change_that_nothing_hints_at_is_found_all_the_same(loop: Loop) -> None:
    job = task()
    waiting = loop.start(until_over(TaskJob, job.pk))
    wait_for(lambda: watched_and_read(job))

    # No signal is sent, so PostgreSQL notifies nobody.
    TaskJob.objects.filter(pk=job.pk).delete()

    with pytest.raises(TaskJob.DoesNotExist, match=f"There is no task {job.pk}: it has been"):
        waiting.result(20)


def test_there_is_no_end_of_a_job_that_is_not_there(loop: Loop) -> None:
    with pytest.raises(TaskJob.DoesNotExist, match="has not committed"):
        loop.start(until_over(TaskJob, uuid.uuid4())).result(20)


def test_impatience_leaves_the_job_alone(loop: Loop) -> None:
    job = claimed(task())
    before = TaskJob.objects.filter(pk=job.pk).values().get()

    with pytest.raises(TimeoutError, match=rf"task {job.pk} is not over after 0\.3 s"):
        loop.start(until_over(TaskJob, job.pk, timeout=0.3)).result(20)

    assert TaskJob.objects.filter(pk=job.pk).values().get() == before
    wait_for(nobody_watches)


@pytest.mark.parametrize(
    ("kind", "pk", "words"),
    [
        (Job, uuid.uuid4(), "must be a kind of job"),
        (str, uuid.uuid4(), "must be a kind of job"),
        (TaskJob(), uuid.uuid4(), "must be a kind of job"),
        (TaskJob, "0" * 32, "must be a UUID"),
        (TaskJob, None, "must be a UUID"),
    ],
)
def test_what_would_be_waited_for_without_end_is_refused(
    loop: Loop, kind: Any, pk: Any, words: str
) -> None:
    with pytest.raises(TypeError, match=words):
        loop.start(until_over(kind, pk)).result(20)
    with pytest.raises(TypeError, match=words):
        wait_until_over(kind, pk)


def test_who_waits_after_a_retry_is_not_told_of_the_end_before_it(loops: list[Loop]) -> None:
    slow, quick, _rest = loops
    job, go_on = task(), threading.Event()
    before = slow.start(until_over(TaskJob, job.pk))
    wait_for(lambda: watched_and_read(job))
    slow.start(hold_up(go_on))
    failed(job)
    wait_for(lambda: any(one.shown.over for one in hub.all()))
    TaskJob.objects.get(pk=job.pk).requeue()

    after = quick.start(until_over(TaskJob, job.pk))
    wait_for(lambda: any(one.shown.job and not one.shown.over for one in hub.all()))
    ended(job, "completed")

    assert after.result(20).status == "completed"
    go_on.set()
    assert before.result(20).status == "failed"


async def hold_up(go_on: threading.Event) -> None:
    """Let nothing else happen on this loop until then."""
    go_on.wait(20)


# Who waits, and at what cost.


def test_any_number_of_loops_wait_at_the_same_time(loops: list[Loop]) -> None:
    job = task()
    waiting = [loop.start(until_over(TaskJob, job.pk)) for loop in loops]
    wait_for(lambda: watched_and_read(job))

    ended(job, "completed")

    rows = [one.result(20) for one in waiting]
    assert [row.result for row in rows] == [-3, -3, -3]
    assert len({id(row) for row in rows}) == 3, "each has a row of its own"


def test_many_who_wait_cost_few_reads(loop: Loop, reads: list[str]) -> None:
    first, second = task(), task()

    async def all_of_them() -> list[TaskJob]:
        waits = (until_over(TaskJob, pk) for pk in [first.pk, second.pk] * 100)
        return await asyncio.gather(*waits)

    waiting = loop.start(all_of_them())
    wait_for(lambda: watched_and_read(first) and watched_and_read(second))
    for job in (first, second):
        ended(job, "completed")

    assert len(waiting.result(20)) == 200
    # Beside one query for all at each look, one for the rows of those that ended.
    assert 0 < len(reads) < 20


@pytest.fixture
def reads(transactional_db: None) -> Iterator[list[str]]:
    """The queries for jobs by the watching thread."""
    reads: list[str] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "SELECT" in sql and "jobs_engine_taskjob" in sql:
            reads.append(sql)
        return execute(sql, params, many, context)

    def follow(connection: Any, **_kwargs: Any) -> None:
        if threading.current_thread().name == "jobs-live":
            connection.execute_wrappers.append(note)

    connection_created.connect(follow)
    yield reads
    connection_created.disconnect(follow)


def test_who_gives_up_leaves_nothing_behind(loop: Loop) -> None:
    job = task()
    waiting = [loop.start(until_over(TaskJob, job.pk)) for _ in range(3)]
    wait_for(lambda: watched_and_read(job))

    for one in waiting:
        one.cancel()

    wait_for(nobody_watches)


def test_a_loop_that_is_closed_keeps_nobody_else_waiting(loop: Loop) -> None:
    async def listener() -> News:
        return News()

    job = task()
    waiting = loop.start(until_over(TaskJob, job.pk))
    (watched,) = wait_for(hub.all)
    closed = asyncio.new_event_loop()
    news = closed.run_until_complete(listener())
    closed.close()
    hub.join(watched.feed, job.pk, listener=news)

    ended(job, "completed")

    assert waiting.result(20).status == "completed"
    hub.leave(watched, listener=news)


# Without an event loop.


def test_a_thread_can_wait_too(worker: Callable[..., Worker]) -> None:
    job = Probe.objects.enqueue(script="report")
    worker(Probe)

    assert wait_until_over(Probe, job.pk, timeout=20).lines == 1000

    with pytest.raises(TimeoutError, match=r"is not over after 0\.2 s"):
        wait_until_over(TaskJob, task().pk, timeout=0.2)
    assert hub.all() == []


def test_a_coroutine_that_would_block_its_loop_is_told_what_to_await(loop: Loop) -> None:
    async def block() -> None:
        wait_until_over(TaskJob, uuid.uuid4())

    with pytest.raises(SynchronousOnlyOperation, match="await until_over"):
        loop.start(block()).result(20)
