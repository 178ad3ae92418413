"""The clock is the database's: a machine whose own is five minutes off changes nothing."""

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db.models.functions import Now

from jobs.engine.models import Schedule
from tests.kinds.models import Effect, Probe
from tests.kinds.scripted import Scripted, for_each_kind
from tests.waiting import wait_for
from tests.workers import ROOT, WorkerProcess, has_status

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., WorkerProcess]
WRONG = {"PYTHONPATH": os.pathsep.join([str(ROOT / "tests" / "wrong_clock"), str(ROOT)])}


def test_the_wrong_clock_is_wrong() -> None:
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "from django.utils import timezone; print(timezone.now().isoformat())",
        ],
        env={**os.environ, **WRONG},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert timedelta(minutes=4) < datetime.fromisoformat(said.strip()) - datetime.now(UTC)


def test_leases_and_waits_are_of_the_databases_clock(worker_process: Start, tmp_path: Path) -> None:
    gate = tmp_path / "open"
    held = Probe.objects.enqueue(script="wait_for_file", argument=str(gate))
    failing = Probe.objects.enqueue(script="fail")
    worker_process(**WRONG)
    wait_for(lambda: Probe.objects.get(pk=failing.pk).attempts and Effect.objects.exists())
    wait_for(has_status(failing, "pending"))

    held.refresh_from_db()
    failing.refresh_from_db()
    now = datetime.now(UTC)
    assert timedelta(seconds=10) < held.lease_until - now <= timedelta(seconds=31)
    assert timedelta(0) < failing.run_at - now < timedelta(seconds=7)
    ended = datetime.fromisoformat(failing.attempt_log[0]["ended_at"])
    assert abs(ended - now) < timedelta(seconds=60)
    gate.touch()
    wait_for(has_status(held, "completed"))


@for_each_kind
def test_three_workers_of_which_one_is_late_make_one_job_for_each_tick(
    worker_process: Start, kind: Scripted
) -> None:
    columns = kind.columns("effect", "")
    schedule: Any = Schedule.objects.create(
        name="each minute", cron="* * * * *", kind=str(kind), columns=columns
    )
    workers = [worker_process("--kinds", str(kind), **more) for more in ({}, {}, WRONG)]
    for worker in workers:
        worker.wait_ready()

    for ticks in range(1, 4):
        Schedule.objects.filter(pk=schedule.pk).update(next_at=Now() - timedelta(seconds=1))
        wait_for(lambda ticks=ticks: Effect.objects.count() >= ticks)
        wait_for(lambda: not Schedule.objects.due().exists())
        planned = Schedule.objects.get(pk=schedule.pk).next_at
        assert planned - datetime.now(UTC) <= timedelta(seconds=61)

    # A real tick may have come in between, at the full minute.
    made = kind.rows.count()
    assert made in (3, 4)
    wait_for(lambda: kind.count("completed") == made)
    assert Effect.objects.count() == made
