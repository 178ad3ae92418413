"""Real worker processes, killed and stopped by real signals."""

import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from django.core.management import CommandError, call_command

from jobs.engine import identity
from jobs.engine.worker import Worker
from tests.kinds.models import Effect
from tests.kinds.scripted import (
    EVERY_KIND,
    PROBE,
    Scripted,
    for_each_kind,
)
from tests.waiting import wait_for
from tests.workers import WorkerProcess, has_status, run_due, status_of

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., WorkerProcess]
LEASE = 2
SHORT = {"JOBS_LEASE_SECONDS": str(LEASE), "JOBS_HEARTBEAT_SECONDS": "0.5"}


def running_on(process: WorkerProcess, number: int) -> Callable[[], bool]:
    return lambda: Effect.objects.filter(process=process.process.pid).count() == number


def running_again(number: int) -> Callable[[], bool]:
    return lambda: Effect.objects.filter(attempt=2).count() == number


def outcomes(job: object) -> list[str]:
    return [line["outcome"] for line in job.attempt_log]  # type: ignore[attr-defined]


def test_two_workers_of_eight_seats_do_five_hundred_jobs_of_each_kind_once_each(
    worker_process: Start,
) -> None:
    for kind in EVERY_KIND:
        kind.enqueue_many(500)
    names = [str(kind) for kind in EVERY_KIND]
    options = ("--kinds", ",".join(names), "--seats", ",".join(f"{name}=8" for name in names))

    workers = [worker_process(*options) for _ in range(2)]
    wait_for(lambda: all(kind.count("completed") == 500 for kind in EVERY_KIND), seconds=60)

    done = Counter(Effect.objects.values_list("job", flat=True))
    assert len(done) == 500 * len(EVERY_KIND)
    assert set(done.values()) == {1}
    for kind in EVERY_KIND:
        assert set(kind.rows.values_list("attempts", flat=True)) == {1}
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert worker.complaints == []


@for_each_kind
def test_jobs_of_a_killed_worker_run_again_elsewhere_when_the_lease_ends(
    worker_process: Start, tmp_path: Path, kind: Scripted
) -> None:
    gate = tmp_path / "open"
    kind.enqueue_many(4, "wait_for_file", gate)
    first = worker_process(*kind.seats(4), **SHORT)
    wait_for(running_on(first, 4))
    worker_process(*kind.seats(4), "--grace", "0", **SHORT).wait_ready()
    # As on another machine: all that is known of the dead worker is what its rows say.
    kind.rows.update(worker="elsewhere/boot.1/1/1")

    first.kill()
    killed = time.monotonic()
    wait_for(running_again(4))
    assert time.monotonic() - killed < LEASE + 5
    gate.touch()
    wait_for(lambda: kind.count("completed") == 4)

    for job in kind.rows:
        assert job.attempts == 2
        (lost,) = job.attempt_log
        assert (lost["number"], lost["outcome"]) == (1, "worker lost")
        assert lost["message"] == "The worker died while running this."


def test_a_new_worker_takes_over_at_once_from_a_dead_process_of_its_machine(
    worker_process: Start, tmp_path: Path
) -> None:
    assert identity.machine_prefix(), "the system does not tell boots and namespaces apart"
    gate = tmp_path / "open"
    job = PROBE.enqueue("wait_for_file", gate)
    # With a lease of half a minute, only the judgement "that process is dead" can be this quick.
    first = worker_process().wait_ready()
    wait_for(running_on(first, 1))
    first.kill()
    gate.touch()

    run_due()

    assert status_of(job) == "completed"


def test_a_worker_that_runs_already_takes_over_from_a_dead_process_within_seconds(
    worker_process: Start, tmp_path: Path
) -> None:
    gate = tmp_path / "open"
    PROBE.enqueue_many(4, "wait_for_file", gate)
    first = worker_process("--seats", "probe=4").wait_ready()
    wait_for(running_on(first, 4))
    worker_process("--seats", "probe=4").wait_ready()

    first.kill()
    wait_for(running_again(4), seconds=15)

    # Each in a process of its own, since any of them may have been what killed the first.
    assert len(set(Effect.objects.filter(attempt=2).values_list("process", flat=True))) == 4
    gate.touch()
    wait_for(lambda: PROBE.rows.filter(status="completed", suspect=False).count() == 4)


@for_each_kind
def test_a_killed_worker_takes_the_processes_of_its_suspects_along(
    worker_process: Start, kind: Scripted
) -> None:
    kind.enqueue("wait_politely")
    for attempt in (1, 2):
        worker = worker_process(*kind.seats(1), "--grace", "0")
        wait_for(lambda attempt=attempt: Effect.objects.filter(attempt=attempt).exists())
        worker.kill()

    suspect = Effect.objects.get(attempt=2).process
    assert suspect != worker.process.pid
    wait_for(lambda: not psutil.pid_exists(suspect))
    wait_for(lambda: kind.rows.filter(status="pending", attempts=1).exists())


@for_each_kind
@pytest.mark.parametrize("script", ["wait_politely", "sleep_without_checks"])
def test_sigterm_hands_jobs_back_in_time_and_unspent_and_they_run_at_once_elsewhere(
    worker_process: Start, kind: Scripted, script: str
) -> None:
    kind.enqueue_many(4, script, max_running_seconds=60)
    first = worker_process(*kind.seats(4), "--grace", "2").wait_ready()
    wait_for(running_on(first, 4))

    asked = time.monotonic()
    first.signal(signal.SIGTERM)
    assert first.wait() == 0

    # The jobs had their grace, and the worker was gone in time.
    assert 1.9 < time.monotonic() - asked < 4
    for job in kind.rows:
        assert (job.status, job.attempts, job.due) == ("pending", 0, True)
        assert outcomes(job) == ["released"]
    second = worker_process(*kind.seats(4)).wait_ready()
    wait_for(running_on(second, 4), seconds=2)
    assert set(kind.rows.values_list("attempts", flat=True)) == {1}


@for_each_kind
def test_ten_deploys_in_a_row_do_not_fail_a_job(
    worker: Callable[..., Worker], kind: Scripted
) -> None:
    job = kind.enqueue("wait_politely", max_attempts=1)
    for deploys in range(1, 11):
        running = worker(kind.model, grace_seconds=0)
        wait_for(lambda deploys=deploys: Effect.objects.count() == deploys)
        running.stop()
        wait_for(has_status(job, "pending"))

    job.refresh_from_db()
    assert (job.attempts, job.spent_attempts) == (0, [])
    assert [(line["outcome"], line["times"]) for line in job.attempt_log] == [("released", 10)]


@for_each_kind
def test_a_deaf_thread_does_not_keep_the_worker_from_leaving(
    worker_process: Start, tmp_path: Path, kind: Scripted
) -> None:
    job = kind.enqueue("wait_deafly", tmp_path / "never")
    process = worker_process(*kind.seats(1), "--grace", "0.2").wait_ready()
    wait_for(running_on(process, 1))

    process.signal(signal.SIGTERM)

    assert process.wait(8) == 0
    job.refresh_from_db()
    assert (job.status, job.attempts) == ("pending", 0)


@for_each_kind
def test_paused_workers_that_wake_too_late_are_refused_and_their_seats_are_free_once(
    worker_process: Start, tmp_path: Path, kind: Scripted
) -> None:
    """Two of three workers are stopped in the middle of their jobs, until others did these."""
    gate, later = tmp_path / "open", tmp_path / "open later"
    jobs = kind.enqueue_many(4, "wait_for_file", gate)
    paused = [worker_process(*kind.seats(2), **SHORT) for _ in range(2)]
    wait_for(lambda: all(running_on(worker, 2)() for worker in paused))
    for worker in paused:
        worker.signal(signal.SIGSTOP)
    other = worker_process(*kind.seats(4), **SHORT)
    wait_for(running_again(4))
    gate.touch()
    wait_for(lambda: kind.count("completed") == 4)
    before = list(kind.rows.order_by("pk").values())
    other.signal(signal.SIGTERM)
    assert other.wait() == 0

    for worker in paused:
        worker.signal(signal.SIGCONT)
    more = kind.enqueue_many(6, "wait_for_file", later)
    wait_for(lambda: Effect.objects.filter(job__in=[job.pk for job in more]).count() == 4)

    # Both are at work again, on just the seats that they have.
    assert (kind.count("running"), kind.count("pending")) == (4, 2)
    later.touch()
    wait_for(lambda: kind.count("completed") == 10)
    for worker in paused:
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert not any("Traceback" in line for line in worker.log), worker.log
    old = kind.rows.filter(pk__in=[job.pk for job in jobs]).order_by("pk")
    assert list(old.values()) == before
    assert {row["attempts"] for row in before} == {2}


def test_a_job_that_kills_its_process_ends_failed_after_its_attempts(worker_process: Start) -> None:
    job = PROBE.enqueue("die", max_attempts=2)
    assert worker_process().wait() == 9
    good = PROBE.enqueue()

    # The second time it dies in a process of its own, and the worker lives on.
    assert worker_process("--burst").wait() == 0

    job.refresh_from_db()
    assert status_of(good) == "completed"
    assert (job.status, job.attempts, outcomes(job)) == ("failed", 2, ["worker lost"] * 2)


@for_each_kind
def test_among_many_jobs_those_that_kill_their_process_fail_and_all_others_complete(
    worker_process: Start, kind: Scripted
) -> None:
    innocent = kind.enqueue_many(40, "tarry", max_attempts=2)
    poison = [kind.enqueue("die", max_attempts=3) for _ in range(3)]
    innocent += kind.enqueue_many(40, "tarry", max_attempts=2)
    worker_process(*kind.seats(4), "--processes", "2")

    wait_for(lambda: kind.count("failed") == 3 and kind.count("completed") == 80, seconds=60)

    for job in kind.rows.filter(pk__in=[job.pk for job in poison]):
        assert (job.status, job.attempts, outcomes(job)) == ("failed", 3, ["worker lost"] * 3)
        assert job.error_message == "The worker died while running this."
    for job in kind.rows.filter(pk__in=[job.pk for job in innocent]):
        # Who was near a death once runs apart from then on, and so is never blamed again.
        assert (job.status, outcomes(job)) in (("completed", []), ("completed", ["worker lost"]))


def test_wrong_options_are_told_in_a_sentence(worker_process: Start) -> None:
    for arguments, word in (
        (["--kinds", "imports"], "Unknown kind: imports"),
        (["--seats", "probe=0"], "from 1"),
        (["--kinds", "probe", "--seats", "chain=1"], "does not run"),
    ):
        with pytest.raises(CommandError, match=word):
            call_command("runworker", *arguments)
    process = worker_process("--grace", "-1")
    assert process.wait() == 1
    assert any("--grace" in line for line in process.log), process.log
    assert not any("Traceback" in line for line in process.log)


def suspects_at_work(start: Start, script: str, argument: str) -> WorkerProcess:
    """A worker that runs, each in a process of its own, what the one before it died with."""
    PROBE.enqueue_many(2, script, argument)
    first = start("--seats", "probe=2").wait_ready()
    wait_for(running_on(first, 2))
    first.kill()
    second = start("--seats", "probe=2").wait_ready()
    wait_for(running_again(2))
    return second


def test_a_stop_lets_suspects_finish_within_the_grace(
    worker_process: Start, tmp_path: Path
) -> None:
    gate = tmp_path / "open"
    worker = suspects_at_work(worker_process, "wait_for_file", str(gate))
    worker.signal(signal.SIGTERM)
    wait_for(lambda: worker.has_said("worker: stopping"))
    gate.touch()
    assert worker.wait() == 0
    assert set(PROBE.rows.values_list("status", "attempts")) == {("completed", 2)}


def test_a_second_signal_hands_suspects_back_at_once(worker_process: Start) -> None:
    worker = suspects_at_work(worker_process, "wait_politely", "")
    suspects = [psutil.Process(one.process) for one in Effect.objects.filter(attempt=2)]
    for suspect in suspects:
        suspect.suspend()
    try:
        wait_for(lambda: all(is_stopped(one.pid) for one in suspects))
        worker.signal(signal.SIGTERM)
        wait_for(lambda: worker.has_said("worker: stopping"))
        worker.signal(signal.SIGTERM)
        # Both signals reach a process that had no time for the first one.
        wait_for(lambda: all(pending_signals(one.pid) == 2 for one in suspects))
    finally:
        for suspect in suspects:
            suspect.resume()
    asked = time.monotonic()
    assert worker.wait() == 0
    assert time.monotonic() - asked < 8
    assert set(PROBE.rows.values_list("status", "attempts")) == {("pending", 1)}


def is_stopped(pid: int) -> bool:
    """All its threads are, so that none takes note of a signal."""
    threads = Path(f"/proc/{pid}/task").glob("*/status")
    return all("\nState:\tT" in thread.read_text() for thread in threads)


def pending_signals(pid: int) -> int:
    """How many signals the process has not taken note of, of those that ask it to end."""
    lines = dict(line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    waiting = int(lines["ShdPnd"], 16)
    return sum(bool(waiting >> (one - 1) & 1) for one in (signal.SIGTERM, signal.SIGINT))
