"""Several workers under one supervisor: started, watched, started again, stopped."""

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from jobs.engine.management.commands.runworker import command_for_one
from jobs.engine.supervisor import DEATHS_IN_A_ROW, EXIT_GIVE_UP, READY_FD, Child, Supervisor
from tests.kinds.models import Effect, Probe
from tests.kinds.scripted import PROBE
from tests.waiting import wait_for
from tests.workers import IMPATIENT, WorkerProcess, status_of

Start = Callable[..., WorkerProcess]


def workers_of(process: WorkerProcess) -> list[psutil.Process]:
    return psutil.Process(process.process.pid).children()


@pytest.mark.django_db(transaction=True)
def test_processes_are_started_again_and_all_end_with_their_supervisor(
    worker_process: Start, tmp_path: Path
) -> None:
    gate = tmp_path / "open"
    for _ in range(4):
        Probe.objects.enqueue(script="wait_for_file", argument=str(gate))
    supervisor = worker_process("--processes", "2", "--seats", "probe=2", "--grace=1")
    wait_for(lambda: Effect.objects.count() == 4)
    assert len(set(Effect.objects.values_list("process", flat=True))) == 2
    first, second = workers_of(supervisor)

    first.kill()
    wait_for(lambda: len({p.pid for p in workers_of(supervisor)} - {first.pid}) == 2)
    gate.touch()
    wait_for(lambda: Probe.objects.filter(status="completed").count() == 4)

    living = workers_of(supervisor)
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0
    assert not any(process.is_running() for process in [*living, second])


@pytest.mark.django_db(transaction=True)
def test_workers_leave_when_their_supervisor_is_killed(worker_process: Start) -> None:
    supervisor = worker_process("--processes", "2")
    wait_for(lambda: len(workers_of(supervisor)) == 2)
    wait_for(lambda: sum("is ready" in line for line in supervisor.log) == 2)
    living = workers_of(supervisor)

    supervisor.kill()

    wait_for(lambda: not any(process.is_running() for process in living))


def deaf(gate: Path) -> None:
    PROBE.enqueue("wait_deafly", gate, max_running_seconds=0.3, max_attempts=1)


@pytest.mark.django_db(transaction=True)
def test_a_worker_alone_leaves_with_75_after_two_threads_that_ignore_their_limit(
    worker_process: Start, tmp_path: Path
) -> None:
    gate, later = tmp_path / "open", tmp_path / "open later"
    for _ in range(2):
        deaf(gate)
    polite = PROBE.enqueue("wait_for_file", later)
    worker = worker_process("--kinds", "probe", "--seats", "probe=3", **IMPATIENT)
    wait_for(lambda: PROBE.count("failed") == 2)
    waiting = PROBE.enqueue()
    # What still runs may finish, but nothing more is claimed.
    assert worker.process.poll() is None
    later.touch()

    assert worker.wait() == 75
    assert [status_of(job) for job in (polite, waiting)] == ["completed", "pending"]
    for job in PROBE.rows.filter(status="failed"):
        assert job.error_message == "Took longer than the limit of 0.3 seconds."
        assert [line["outcome"] for line in job.attempt_log] == ["timed out"]


@pytest.mark.django_db(transaction=True)
def test_a_supervisor_starts_a_worker_again_that_gave_up_its_threads(
    worker_process: Start, tmp_path: Path
) -> None:
    deaf(tmp_path / "never")
    options = ("--processes", "2", "--seats", "probe=1")
    supervisor = worker_process(*options, JOBS_MAX_ABANDONED="1", **IMPATIENT)
    wait_for(lambda: supervisor.has_said("leaves and is started again"))
    wait_for(lambda: sum("is ready" in line for line in supervisor.log) == 3)

    # Two workers again: two jobs at the same time.
    PROBE.enqueue_many(2, "wait_for_file", tmp_path / "open")
    wait_for(lambda: PROBE.count("running") == 2)
    (tmp_path / "open").touch()
    wait_for(lambda: PROBE.count("completed") == 2)
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0


def supervise(*children: Child) -> int:
    """Run a supervisor in this process, whose signals are its own again after that."""
    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
    }
    try:
        return Supervisor(children, stop_seconds=1).run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def child(code: str, **options: Any) -> Child:
    return Child("child", [sys.executable, "-S", "-c", code], **options)


def test_a_child_that_never_stays_alive_makes_the_supervisor_give_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jobs.engine.supervisor.FIRST_WAIT", 0.001)
    monkeypatch.setattr("jobs.engine.supervisor.LONGEST_WAIT", 0.001)
    broken = child("raise SystemExit(3)")
    assert supervise(broken) == 1
    assert broken.deaths == DEATHS_IN_A_ROW


def test_a_child_that_no_start_would_help_ends_the_supervisor_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jobs.engine.supervisor.LONGEST_LOOK", 15)
    began = time.monotonic()
    assert supervise(child(f"raise SystemExit({EXIT_GIVE_UP})")) == 1
    assert time.monotonic() - began < 10


def test_a_child_starts_as_soon_as_the_one_before_it_is_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jobs.engine.supervisor.LONGEST_LOOK", 15)
    told = f"import os, time; os.write(int(os.environ['{READY_FD}']), b'.'); time.sleep(60)"
    began = time.monotonic()
    assert supervise(child(told, opening=[]), child(f"raise SystemExit({EXIT_GIVE_UP})")) == 1
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("program", ["/srv/shop/manage.py", "/lib/django/__main__.py"])
def test_a_child_is_started_by_the_same_program_with_the_other_options(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(sys, "argv", [program, "runworker", "--processes", "2"])
    given = {
        "processes": 2,
        "burst": False,
        "kinds": "a,b",
        "grace": 0.0,
        "seats": "",
        "queues": None,
    }
    start = ["-m", "django"] if "django" in program else [program]
    assert command_for_one(given) == [
        *(sys.executable, *start, "runworker", "--kinds=a,b", "--grace=0.0")
    ]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("options", "word"),
    [(["--proc", "2"], "unrecognized arguments"), (["--burst", "--processes", "2"], "choose one")],
    ids=" ".join,
)
def test_options_that_would_start_workers_without_end_are_refused(
    worker_process: Start, options: list[str], word: str
) -> None:
    process = worker_process(*options)
    assert process.wait() in (1, 2)
    assert process.has_said(word)


def test_a_worker_leaves_although_an_executor_of_a_handler_hangs(worker_process: Start) -> None:
    for _ in range(2):
        Probe.objects.enqueue(script="hang_in_an_executor", max_attempts=1, max_running_seconds=0.5)
    process = worker_process("--seats", "probe=2", "--kinds", "probe", **IMPATIENT)
    assert process.wait(30) == 75
    assert set(Probe.objects.values_list("status", flat=True)) == {"failed"}
