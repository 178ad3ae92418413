"""Real worker processes, killed and stopped by real signals."""

import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.engine import identity
from tests.kinds.models import Effect, Probe
from tests.waiting import wait_for
from tests.workers import WorkerProcess, has_status, run_due, status_of

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., WorkerProcess]
SHORT = {"JOBS_LEASE_SECONDS": "3", "JOBS_HEARTBEAT_SECONDS": "1"}


def running_on(process: WorkerProcess, number: int) -> Callable[[], bool]:
    return lambda: Effect.objects.filter(process=process.process.pid).count() == number


def running_again(number: int) -> Callable[[], bool]:
    return lambda: Effect.objects.filter(attempt=2).count() == number


def test_two_workers_of_eight_seats_do_five_hundred_jobs_once_each(worker_process: Start) -> None:
    Probe.objects.enqueue_many({} for _ in range(500))

    workers = [worker_process("--kinds", "probe", "--seats", "probe=8") for _ in range(2)]
    wait_for(lambda: Probe.objects.filter(status="completed").count() == 500, seconds=60)

    done = Counter(Effect.objects.values_list("job", flat=True))
    assert len(done) == 500
    assert set(done.values()) == {1}
    assert set(Probe.objects.values_list("attempts", flat=True)) == {1}
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert not any("locked" in line or "ERROR" in line for line in worker.log), worker.log


def test_jobs_of_a_killed_worker_run_again_on_another_when_the_lease_ends(
    worker_process: Start, tmp_path: Path
) -> None:
    gate = tmp_path / "open"
    jobs = [Probe.objects.enqueue(script="wait_for_file", argument=str(gate)) for _ in range(4)]
    first = worker_process("--seats", "probe=4", **SHORT).wait_ready()
    wait_for(running_on(first, 4))
    worker_process("--seats", "probe=4", **SHORT).wait_ready()

    first.kill()
    killed = time.monotonic()
    wait_for(running_again(4), seconds=3 + 5)
    assert time.monotonic() - killed < 3 + 5
    gate.touch()
    wait_for(lambda: all(status_of(job) == "completed" for job in jobs))

    for job in Probe.objects.all():
        assert job.attempts == 2
        assert [line["outcome"] for line in job.attempt_log] == ["worker lost"]


def test_a_new_worker_takes_over_at_once_from_a_dead_process_of_its_machine(
    worker_process: Start, tmp_path: Path
) -> None:
    assert identity.machine_prefix(), "the system does not tell boots and namespaces apart"
    gate = tmp_path / "open"
    job = Probe.objects.enqueue(script="wait_for_file", argument=str(gate))
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
    for _ in range(4):
        Probe.objects.enqueue(script="wait_for_file", argument=str(gate))
    first = worker_process("--seats", "probe=4").wait_ready()
    wait_for(running_on(first, 4))
    worker_process("--seats", "probe=4").wait_ready()

    first.kill()
    wait_for(running_again(4), seconds=15)

    # Each in a process of its own, since any of them may have been what killed the first.
    assert len(set(Effect.objects.filter(attempt=2).values_list("process", flat=True))) == 4
    gate.touch()
    wait_for(lambda: Probe.objects.filter(status="completed", suspect=False).count() == 4)


@pytest.mark.parametrize("script", ["wait_politely", "sleep_without_checks"])
def test_sigterm_hands_jobs_back_in_time_and_unspent(worker_process: Start, script: str) -> None:
    jobs = [Probe.objects.enqueue(script=script) for _ in range(4)]
    process = worker_process("--grace", "2", "--seats", "probe=4").wait_ready()
    wait_for(running_on(process, 4))

    asked = time.monotonic()
    process.signal(signal.SIGTERM)
    assert process.wait() == 0

    assert 1.5 < time.monotonic() - asked < 4
    for job in Probe.objects.all():
        assert (job.status, job.attempts, job.due) == ("pending", 0, True)
        assert [line["outcome"] for line in job.attempt_log] == ["released"]
    assert len(jobs) == 4


def test_a_deaf_thread_does_not_keep_the_worker_from_leaving(
    worker_process: Start, tmp_path: Path
) -> None:
    job = Probe.objects.enqueue(script="wait_deafly", argument=str(tmp_path / "never"))
    process = worker_process("--grace", "0.2").wait_ready()
    wait_for(running_on(process, 1))

    process.signal(signal.SIGTERM)

    assert process.wait(8) == 0
    assert (status_of(job), Probe.objects.get(pk=job.pk).attempts) == ("pending", 0)


def test_a_paused_worker_that_wakes_too_late_is_refused(
    worker_process: Start, tmp_path: Path
) -> None:
    gate = tmp_path / "open"
    job = Probe.objects.enqueue(script="wait_for_file", argument=str(gate))
    paused = worker_process(**SHORT).wait_ready()
    wait_for(running_on(paused, 1))
    paused.signal(signal.SIGSTOP)

    worker_process(**SHORT)
    wait_for(running_again(1))
    gate.touch()
    wait_for(has_status(job, "completed"))
    before = Probe.objects.filter(pk=job.pk).values().get()
    paused.signal(signal.SIGCONT)
    after_waking = Probe.objects.enqueue()
    wait_for(has_status(after_waking, "completed"))
    paused.signal(signal.SIGTERM)

    assert paused.wait() == 0
    assert Probe.objects.filter(pk=job.pk).values().get() == before
    assert before["attempts"] == 2


def test_a_job_that_kills_its_process_ends_failed_after_its_attempts(worker_process: Start) -> None:
    job = Probe.objects.enqueue(script="die", max_attempts=2)
    assert worker_process().wait() == 9
    good = Probe.objects.enqueue()

    # The second time it dies in a process of its own, and the worker lives on.
    assert worker_process("--burst").wait() == 0

    assert status_of(good) == "completed"
    row = Probe.objects.get(pk=job.pk)
    assert (row.status, row.attempts) == ("failed", 2)
    assert [line["outcome"] for line in row.attempt_log] == ["worker lost"] * 2


def test_wrong_options_are_told_in_a_sentence(worker_process: Start) -> None:
    for arguments, word in (
        (["--kinds", "imports"], "Unknown kind: imports"),
        (["--seats", "probe=0"], "from 1"),
        (["--kinds", "probe", "--seats", "chain=1"], "does not run"),
        (["--grace", "-1"], "--grace"),
    ):
        process = worker_process(*arguments)
        assert process.wait() == 1
        assert any(word in line for line in process.log), process.log
        assert not any("Traceback" in line for line in process.log)


def suspects_at_work(start: Start, script: str, argument: str) -> WorkerProcess:
    """A worker that runs, each in a process of its own, what the one before it died with."""
    for _ in range(2):
        Probe.objects.enqueue(script=script, argument=argument)
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
    assert set(Probe.objects.values_list("status", "attempts")) == {("completed", 2)}


def test_a_second_signal_hands_suspects_back_at_once(worker_process: Start) -> None:
    worker = suspects_at_work(worker_process, "wait_politely", "")
    worker.signal(signal.SIGTERM)
    wait_for(lambda: worker.has_said("worker: stopping"))
    worker.signal(signal.SIGTERM)
    asked = time.monotonic()
    assert worker.wait() == 0
    assert time.monotonic() - asked < 8
    assert set(Probe.objects.values_list("status", "attempts")) == {("pending", 1)}
