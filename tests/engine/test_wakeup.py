"""Wake-ups are hints: they make it fast, polling makes it right."""

import subprocess
import time
from collections.abc import Callable

import pytest

from tests.kinds.models import Effect
from tests.kinds.scripted import PROBE, TASK, Scripted, for_each_kind
from tests.outages import end_sessions, sessions
from tests.waiting import wait_for
from tests.workers import (
    WorkerProcess,
    command_environment,
    command_line,
    has_status,
)

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., WorkerProcess]
LISTENS = "LISTEN%"
ENQUEUE = """
from django.db import transaction
from tests.kinds.scripted import PROBE, TASK
for _ in range(20):
    with transaction.atomic():
        PROBE.enqueue_many(5)
        TASK.enqueue()
"""


def pickup(kind: Scripted) -> float:
    """Seconds from an enqueue, just before its commit, to its claim; on the database's clock."""
    job = kind.enqueue()
    wait_for(has_status(job, "completed"))
    job.refresh_from_db()
    return float((job.started_at - job.created_at).total_seconds())


@pytest.mark.postgresql
@for_each_kind
def test_a_killed_listen_session_is_made_anew_and_jobs_start_in_milliseconds_again(
    worker_process: Start, kind: Scripted
) -> None:
    # So seldom does it look by itself that only a wake-up can be what started a job.
    worker_process(*kind.seats(4), JOBS_POLL_SECONDS="300")
    wait_for(lambda: sessions(like=LISTENS) == 1)
    pickup(kind)
    assert end_sessions(like=LISTENS) == 1
    killed = time.monotonic()

    # Less than the poll interval is by default.
    assert pickup(kind) < 1
    in_a_row = 0
    while in_a_row < 3:
        in_a_row = in_a_row + 1 if pickup(kind) < 0.05 else 0
        assert time.monotonic() - killed < 10


@pytest.mark.postgresql
def test_behind_a_pooler_in_transaction_mode_all_is_done_by_polling_after_one_warning(
    worker_process: Start, pgbouncer: str
) -> None:
    workers = [worker_process("--kinds", "probe,task", DATABASE_URL=pgbouncer) for _ in range(2)]
    for worker in workers:
        wait_for(lambda worker=worker: any("NOTIFY does not" in line for line in worker.log))
    subprocess.run(
        command_line("shell", "-v0", "-c", ENQUEUE),
        env=command_environment(DATABASE_URL=pgbouncer),
        check=True,
    )
    wait_for(lambda: Effect.objects.count() == 120, seconds=60)
    for worker in workers:
        worker.process.terminate()
        assert worker.wait() == 0
        (warning,) = worker.complaints
        assert "NOTIFY does not arrive" in warning
    for kind in (PROBE, TASK):
        assert set(kind.rows.values_list("status", "attempts")) == {("completed", 1)}
