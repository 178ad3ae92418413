"""Coroutines: one loop for all seats, bounded by them, ended like everything else that runs."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.tasks import task

from jobs.engine import coroutines
from jobs.engine.coroutines import DaemonThreads
from jobs.engine.execution import Run
from jobs.engine.models import TaskJob
from jobs.engine.retry import Cancelled, TimedOut
from jobs.engine.testing import run_pending
from jobs.engine.worker import EXIT_RETIRED
from tests.engine.task_rows import row
from tests.kinds import tasks
from tests.kinds.models import Effect
from tests.waiting import wait_for
from tests.workers import IMPATIENT, command_environment, has_status, run_due, status_of

pytestmark = pytest.mark.django_db(transaction=True)


def threads_called(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker in this process gives up soon what ignores its end."""
    monkeypatch.setattr("jobs.engine.beat.SECONDS_TO_OBEY", 0.5)


def test_coroutines_share_one_loop_and_no_thread_for_their_queries() -> None:
    results = tasks.tell_async.enqueue_many(((n,), {}) for n in range(8))
    run_due(TaskJob)
    told = [row(result).result for result in results]
    assert [entry["word"] for entry in told] == [str(n) for n in range(8)]
    assert {entry["loop"] for entry in told} == {"jobs-loop"}
    assert Effect.objects.count() == 8
    assert len(threads_called("jobs-loop")) == 1
    # The thread that a coroutine made its queries in ends with it.
    wait_for(lambda: not threads_called("jobs-coroutine"))
    job = row(results[0])
    assert (job.progress_step, job.progress_done) == ("halfway", 1)


def test_seats_bound_how_many_coroutines_there_are(
    tmp_path: Path, worker: Callable[..., Any]
) -> None:
    tasks.most_together = 0
    tasks.meet.enqueue_many([((str(tmp_path / "go"),), {})] * 7)
    worker(TaskJob, seats={"task": 3})
    wait_for(lambda: Effect.objects.count() == 3)
    (tmp_path / "go").touch()
    wait_for(lambda: TaskJob.objects.filter(status="completed").count() == 7)
    assert tasks.most_together == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fail_async", "ValueError: no luck"),
        ("leave_async", "SystemExit: gone"),
        ("cancel_oneself", "CancelledError: CancelledError"),
    ],
)
def test_whatever_a_coroutine_raises_is_its_own_failure(name: str, message: str) -> None:
    result = getattr(tasks, name).enqueue()
    after = tasks.tell_async.enqueue(1)
    run_due(TaskJob)
    job = row(result)
    assert (job.status, job.error_message) == ("pending", message)
    assert "tests/kinds/tasks.py" in job.attempt_log[0]["traceback"]
    assert status_of(row(after)) == "completed"


def test_a_cancel_reaches_the_coroutine_which_may_tidy_up(
    tmp_path: Path, worker: Callable[..., Any]
) -> None:
    result = tasks.wait_async.enqueue(str(tmp_path / "tidied"))
    worker(TaskJob)
    wait_for(Effect.objects.exists)
    began = time.monotonic()
    row(result).cancel()
    wait_for(has_status(row(result), "cancelled"))
    assert time.monotonic() - began < 5
    assert (tmp_path / "tidied").read_text() == "tidied up"


def test_a_time_limit_cancels_the_coroutine() -> None:
    result = tasks.wait_too_long.enqueue()
    began = time.monotonic()
    run_due(TaskJob)
    job = row(result)
    assert (job.status, job.attempt_log[0]["outcome"]) == ("failed", "timed out")
    assert time.monotonic() - began < 10


def test_a_leaving_worker_takes_its_coroutines_back(
    tmp_path: Path, worker: Callable[..., Any]
) -> None:
    result = tasks.wait_async.enqueue(str(tmp_path / "tidied"))
    running = worker(TaskJob, grace_seconds=0)
    wait_for(Effect.objects.exists)
    running.stop()
    wait_for(has_status(row(result), "pending"))
    assert (tmp_path / "tidied").exists()
    assert row(result).attempts == 0


def test_a_lost_claim_cancels_the_coroutine(
    tmp_path: Path, worker: Callable[..., Any], jobs_settings: Callable[..., None]
) -> None:
    jobs_settings(LEASE_SECONDS=1, HEARTBEAT_SECONDS=0.2)
    result = tasks.wait_async.enqueue(str(tmp_path / "tidied"))
    worker(TaskJob)
    wait_for(Effect.objects.exists)
    TaskJob.objects.filter(pk=result.id).delete()
    wait_for((tmp_path / "tidied").exists)


def test_a_coroutine_that_swallows_its_end_loses_its_seat(
    tmp_path: Path, worker: Callable[..., Any], impatient: None
) -> None:
    result = tasks.swallow.enqueue(str(tmp_path / "go"))
    worker(TaskJob, seats={"task": 1})
    wait_for(has_status(row(result), "failed"))
    assert row(result).attempt_log[0]["outcome"] == "timed out"

    # The loop and the seat serve others, and the late end of the stubborn one counts for nothing.
    other = tasks.tell_async.enqueue(1)
    wait_for(has_status(row(other), "completed"))
    (tmp_path / "go").touch()
    another = tasks.tell_async.enqueue(2)
    wait_for(has_status(row(another), "completed"))
    assert row(result).status == "failed"


def test_a_coroutine_that_blocks_the_loop_blocks_no_other_for_long(
    tmp_path: Path, worker: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coroutines, "SECONDS_TO_START", 0.5)
    blocking = tasks.block_the_loop.enqueue(str(tmp_path / "go"))
    worker(TaskJob)
    wait_for(Effect.objects.exists)
    others = tasks.tell_async.enqueue_many([((n,), {}) for n in range(3)])
    for other in others:
        wait_for(has_status(row(other), "completed"))
    assert len(threads_called("jobs-loop")) == 2
    wait_for(has_status(row(blocking), "failed"))
    (tmp_path / "go").touch()
    # The loop that was given up ends with its last coroutine.
    wait_for(lambda: len(threads_called("jobs-loop")) == 1)
    assert row(blocking).attempt_log[0]["outcome"] == "timed out"


def test_a_worker_with_too_many_stubborn_coroutines_retires(
    tmp_path: Path, worker_process: Callable[..., Any]
) -> None:
    results = [tasks.swallow.enqueue(str(tmp_path / "go")) for _ in range(2)]
    process = worker_process("--kinds", "task", **IMPATIENT).wait_ready()
    assert process.wait(40) == EXIT_RETIRED
    assert [row(result).status for result in results] == ["failed", "failed"]


def test_a_worker_whose_coroutines_leave_hanging_threads_retires(
    worker_process: Callable[..., Any],
) -> None:
    results = [tasks.hang_in_threads.enqueue(1) for _ in range(2)]
    process = worker_process("--kinds", "task", **IMPATIENT).wait_ready()
    assert process.wait(40) == EXIT_RETIRED
    assert [row(result).attempt_log[0]["outcome"] for result in results] == ["timed out"] * 2


def test_threads_that_hang_or_are_shut_down_are_in_nobodys_way(
    worker: Callable[..., Any], impatient: None
) -> None:
    hanging = tasks.hang_in_threads.enqueue(coroutines.MOST_THREADS)
    shut = tasks.shut_the_threads_down.enqueue()
    worker(TaskJob, seats={"task": 2})
    wait_for(has_status(row(shut), "completed"))
    other = tasks.in_a_thread.enqueue()
    wait_for(has_status(row(other), "completed"))
    wait_for(has_status(row(hanging), "failed"))


def test_a_cancel_waits_for_a_thread_of_the_coroutine_for_a_while_only(
    worker: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coroutines, "SECONDS_FOR_THREADS", 0.5)
    result = tasks.sleep_in_a_thread.enqueue()
    worker(TaskJob)
    wait_for(has_status(row(result), "running"))
    row(result).cancel()
    wait_for(has_status(row(result), "cancelled"))


def test_threads_of_coroutines_do_not_hold_up_a_stop(
    worker_process: Callable[..., Any],
) -> None:
    declared = task(max_running_seconds=0.5, max_attempts=1)(tasks.sleep_in_a_thread.func)
    result = declared.enqueue()
    process = worker_process("--kinds", "task", **IMPATIENT).wait_ready()
    wait_for(has_status(row(result), "failed"))
    began = time.monotonic()
    process.process.terminate()
    assert process.wait() == 0
    assert time.monotonic() - began < 10


def test_queries_in_other_threads_of_a_coroutine_give_their_connections_back() -> None:
    result = tasks.in_a_thread.enqueue()
    run_due(TaskJob)
    assert row(result).result == 0


def test_pending_coroutines_run_in_the_test_itself() -> None:
    result = tasks.tell_async.enqueue(5)
    run_pending(TaskJob)
    assert row(result).result["thread"] == threading.get_ident()


@pytest.mark.django_db(transaction=False)
def test_pending_coroutines_run_inside_the_transaction_of_a_test() -> None:
    assert connection.in_atomic_block
    result = tasks.tell_async.enqueue(5)
    failing = tasks.fail_async.enqueue()
    run_pending(TaskJob)
    # What it wrote is seen, and will be rolled back, with the rest of the test.
    assert row(result).status == "completed"
    assert row(failing).error_message == "ValueError: no luck"
    assert Effect.objects.get().job == row(result).pk


def test_a_stop_that_came_first_is_told_at_once() -> None:
    tasks.noop.enqueue()
    (job,) = TaskJob.objects.claim(1, worker="w", lease_seconds=30)
    run = Run(job, lease_ends=time.monotonic() + 30, await_on=coroutines.on_the_loop)
    run.stop(Cancelled("too late"))

    async def wait() -> None:
        await asyncio.sleep(600)

    with pytest.raises(asyncio.CancelledError):
        run.wait_for(wait)
    told: list[str] = []
    run.when_stopped(lambda: told.append("now"))
    assert told == ["now"]
    run.stop(TimedOut("and later"))
    assert told == ["now"]


def test_daemon_threads_are_as_many_as_allowed_and_end_when_told() -> None:
    threads = DaemonThreads(2, name="few")
    gate = threading.Event()
    busy = [threads.submit(gate.wait, 20) for _ in range(3)]
    assert threads.threads == 2
    assert busy[2].cancel()
    gate.set()
    assert busy[0].result(20)
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 // 0).result(20)
    assert threads.submit(lambda: "on").result(20) == "on"
    assert threads.threads == 2
    assert len(threads_called("few")) == 2
    threads.shutdown()
    wait_for(lambda: not threads_called("few"))
    # Whoever comes later is served too, and leaves nothing behind.
    assert threads.submit(lambda: "late").result(20) == "late"
    wait_for(lambda: not threads_called("few"))
    assert threads.wait_until_done(0)


def test_an_idle_process_has_no_loop() -> None:
    code = "import django; django.setup(); import jobs.engine.worker, threading; print([t.name for t in threading.enumerate()])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=command_environment(), capture_output=True, text=True
    )
    assert done.stdout.strip() == "['MainThread']", done.stderr
