"""Databases that restart, are away, or are locked: no loop ends, no outcome is lost."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, connection, connections, transaction

from jobs.engine.beat import Beat
from jobs.engine.conf import config
from jobs.engine.execution import Run
from jobs.engine.retry import Lost
from jobs.engine.running import Running
from tests import postgres
from tests.engine.test_claiming import in_threads
from tests.kinds.models import Effect, Probe
from tests.kinds.scripted import (
    EVERY_KIND,
    Scripted,
    for_each_kind,
)
from tests.outages import ask, database_away, end_sessions, impatient, interrupt_server
from tests.waiting import wait_for
from tests.workers import WorkerProcess, age_lease, has_status

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., WorkerProcess]


class Load(threading.Thread):
    """Enqueues 200 jobs a second until it is told to end; what an outage refuses, once more."""

    def __init__(self, kind: Scripted) -> None:
        super().__init__(daemon=True)
        self._kind = kind
        self._over = threading.Event()
        self.ids: list[Any] = []

    def run(self) -> None:
        while not self._over.wait(0.1):
            rows = [self._kind.born() for _ in range(20)]
            self.ids += [row["id"] for row in rows]
            while True:
                try:
                    if not self._kind.rows.filter(pk=rows[0]["id"]).exists():
                        self._kind.model.objects.enqueue_many(rows)
                    break
                except DatabaseError:
                    connections.close_all()
                    self._over.wait(0.05)
        connections.close_all()

    def end(self) -> list[Any]:
        self._over.set()
        self.join(30)
        assert not self.is_alive()
        return self.ids


@contextmanager
def load(kind: Scripted) -> Iterator[Load]:
    running = Load(kind)
    running.start()
    try:
        yield running
    finally:
        running.end()


@pytest.mark.postgresql
@for_each_kind
def test_a_server_restarted_three_times_under_load_loses_nothing(
    worker_process: Start, kind: Scripted
) -> None:
    options = (*kind.seats(4), "--grace", "5")
    workers = [worker_process(*options, JOBS_BACKOFF_BASE="1") for _ in range(2)]
    with load(kind) as running:
        for interrupt in (interrupt_server, end_sessions, interrupt_server):
            before = kind.count("completed")
            wait_for(lambda before=before: kind.count("completed") > before + 200)
            interrupt()
            back = ask("SELECT now() FROM pg_database WHERE datname = %s")
            wait_for(lambda back=back: kind.rows.filter(started_at__gt=back).exists(), seconds=10)
            first = kind.rows.filter(started_at__gt=back).earliest("started_at")
            assert first.started_at - back < timedelta(seconds=5)
        jobs = running.end()

    wait_for(lambda: kind.count("completed") == len(jobs), seconds=60)
    assert set(kind.rows.values_list("pk", flat=True)) == set(jobs)
    # At least once: what was cut between effect and outcome may have been done twice, no more.
    assert set(Effect.objects.values_list("job", flat=True)) == set(jobs)
    assert all(worker.process.poll() is None for worker in workers)
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert not any("Traceback" in line for line in worker.log), worker.log


@for_each_kind
def test_an_outcome_is_written_when_the_database_is_back_and_the_job_not_run_again(
    worker_process: Start, tmp_path: Path, kind: Scripted
) -> None:
    gate, done = tmp_path / "open", tmp_path / "open.done"
    job = kind.enqueue("tell_when_done", gate)
    worker = worker_process(*kind.seats(2), **impatient())
    wait_for(lambda: Effect.objects.exists())

    with database_away():
        gate.touch()
        wait_for(done.exists)
        wait_for(lambda: any("finishing: the database does not" in line for line in worker.log))
    wait_for(has_status(job, "completed"))

    job.refresh_from_db()
    assert (job.attempts, job.attempt_log) == (1, [])
    assert Effect.objects.count() == 1
    # And the worker is as good as before.
    wait_for(has_status(kind.enqueue(), "completed"))


@for_each_kind
def test_a_worker_that_cannot_renew_past_the_lease_stops_its_jobs_itself(
    worker_process: Start, tmp_path: Path, kind: Scripted
) -> None:
    left = tmp_path / "left"
    short = {"JOBS_LEASE_SECONDS": "1", "JOBS_HEARTBEAT_SECONDS": "0.3"}
    job = kind.enqueue("wait_politely", left)
    worker_process(*kind.seats(1), "--grace", "0", **short, **impatient())
    wait_for(lambda: Effect.objects.exists())

    with database_away():
        wait_for(left.exists)
        assert "The lease could not be renewed" in left.read_text()

    wait_for(lambda: Effect.objects.filter(job=job.pk, attempt=2).exists())


@for_each_kind
def test_a_long_transaction_of_a_handler_starts_nothing_twice(
    worker_process: Start, tmp_path: Any, kind: Scripted
) -> None:
    """It reports inside its own transaction of ten seconds, beside three others."""
    short = {"JOBS_LEASE_SECONDS": "4", "JOBS_HEARTBEAT_SECONDS": "1"}
    long = kind.enqueue("report_in_a_transaction", 10)
    gate = tmp_path / "open"
    kind.enqueue_many(3, "wait_for_file", gate)
    for _ in range(2):
        worker_process(*kind.seats(4), **short)

    wait_for(has_status(long, "completed"), seconds=40)
    gate.touch()
    wait_for(lambda: kind.count("completed") == 4, seconds=40)

    assert set(kind.rows.values_list("attempts", flat=True)) == {1}
    assert Effect.objects.count() == 4


def test_nobody_ever_hears_of_a_locked_database(worker_process: Start) -> None:
    """Writers as in a web process, and two worker processes, on 1,000 jobs of each kind."""
    names = [str(kind) for kind in EVERY_KIND]
    options = ("--kinds", ",".join(names), "--seats", ",".join(f"{name}=4" for name in names))
    workers = [worker_process(*options) for _ in range(2)]
    errors: list[BaseException] = []

    def write() -> None:
        try:
            for _ in range(125):
                with transaction.atomic():
                    for kind in EVERY_KIND:
                        kind.enqueue()
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    writers = [threading.Thread(target=write) for _ in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    wait_for(lambda: all(kind.count("completed") == 1000 for kind in EVERY_KIND), seconds=120)

    assert errors == []
    assert Effect.objects.count() == 2000
    for kind in EVERY_KIND:
        assert not kind.rows.exclude(error_message="").exists()
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert worker.complaints == []


@pytest.mark.postgresql
def test_a_pool_that_had_grown_gets_over_a_restart_at_once() -> None:
    """Every connection in it is dead, and nobody may have to wait for one after the other."""
    own = postgres.own_server
    in_threads(8, Probe.objects.count)
    connections.close_all()

    own.restart() if own else end_sessions()

    began = time.monotonic()
    for _ in range(3):
        assert in_threads(1, Probe.objects.count) == [0]
    assert time.monotonic() - began < 3


def test_a_run_that_was_given_up_keeps_no_lease() -> None:
    """So that its job is rescued as soon as the lease that it has is over."""
    kept, lost = (Probe.objects.enqueue() for _ in range(2))
    running = Running()
    runs = {
        job.pk: Run(job, lease_ends=time.monotonic())
        for job in Probe.objects.claim(2, worker="w", lease_seconds=30)
    }
    for run in runs.values():
        running.add(run)
    runs[lost.pk].stop(Lost("The lease could not be renewed in time."))
    for job in (kept, lost):
        age_lease(job, seconds=1)

    Beat(running, config=config(), using=connection.alias, abandon=lambda run: None).renew()

    assert [job.pk for job in Probe.objects.expired()] == [lost.pk]
