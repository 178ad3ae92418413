"""Imports by real worker processes, killed and stopped in the middle by real signals."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from django.test import Client

from accounts.models import User
from jobs.models import ImportJob
from repositories.models import Repository
from tests import gitrepos
from tests.githttp import GitServer
from tests.jobs.conftest import (
    assert_nothing_left,
    begun,
    enqueued,
    files,
    fresh,
    programs,
    source_of,
)
from tests.waiting import wait_for
from tests.workers import WorkerProcess, has_status

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., WorkerProcess]
ALLOWED = {"FORGE_IMPORT_ALLOWED_NETWORKS": "127.0.0.1/32"}
DIED = "The worker died while running this."
SHORT = {"JOBS_LEASE_SECONDS": "3", "JOBS_HEARTBEAT_SECONDS": "1"}


@pytest.fixture
def import_process(worker_process: Start) -> Start:
    """Start a worker for imports that may reach the test's server."""
    return lambda *options, **more: worker_process("--kinds", "import", *options, **ALLOWED, **more)


def of_claim(job: ImportJob, data_dir: Path) -> list[psutil.Process]:
    """The git processes that the job's present claim has started."""
    claim = str(fresh(job).claim)
    return [one for one in programs(data_dir) if claim in "".join(one.cmdline())]


def is_receiving(job: ImportJob) -> bool:
    row = fresh(job)
    return row.status == "running" and row.progress_step == "Receiving objects"


def test_an_import_whose_worker_is_killed_is_finished_by_another(
    ada: User, git_server: GitServer, data_dir: Path, import_process: Start, page: Client
) -> None:
    git_server.bytes_per_second = 128 * 1024
    job = enqueued(ada, source=source_of(git_server, "slow"))
    first = import_process(**SHORT).wait_ready()
    wait_for(lambda: is_receiving(job))
    before = fresh(job).progress_pct
    orphans = of_claim(job, data_dir)
    assert (before > 0, len(orphans) > 0) == (True, True)
    import_process(**SHORT).wait_ready()

    first.kill()
    wait_for(lambda: fresh(job).attempts == 2)

    assert fresh(job).progress_pct < before
    html = page.get(f"/import/{job.pk}/progress").content.decode()
    assert "Attempt 2: the worker was lost." in html
    wait_for(lambda: not any(one.is_running() for one in orphans), seconds=6)
    git_server.bytes_per_second = 1 << 30
    wait_for(has_status(job, "completed"))
    row = fresh(job)
    assert [line["outcome"] for line in row.attempt_log] == ["worker lost"]
    assert row.repository == Repository.objects.get()
    assert files(data_dir) == [f"{job.pk}.git"]
    assert gitrepos.git(Repository.objects.get().path, "fsck", "--strict") == b""
    wait_for(lambda: not programs(data_dir))


def test_a_new_worker_takes_over_an_import_at_once_after_a_crash(
    ada: User, git_server: GitServer, data_dir: Path, import_process: Start
) -> None:
    git_server.bytes_per_second = 128 * 1024
    job = enqueued(ada, source=source_of(git_server, "slow"))
    first = import_process().wait_ready()
    wait_for(lambda: is_receiving(job))
    first.kill()
    git_server.bytes_per_second = 1 << 30

    # With a lease of half a minute, only the judgement "that process is dead" can be this quick.
    import_process()
    wait_for(has_status(job, "completed"))

    assert fresh(job).attempts == 2
    assert files(data_dir) == [f"{job.pk}.git"]
    wait_for(lambda: not programs(data_dir))


def test_an_import_that_loses_its_last_worker_has_failed_and_leaves_nothing(
    ada: User, git_server: GitServer, data_dir: Path, import_process: Start, page: Client
) -> None:
    git_server.bytes_per_second = 128 * 1024
    job = enqueued(ada, source=source_of(git_server, "slow"), max_attempts=1)
    first = import_process().wait_ready()
    wait_for(lambda: is_receiving(job))
    first.kill()

    assert import_process("--burst").wait() == 0

    assert (fresh(job).status, fresh(job).error_message) == ("failed", DIED)
    assert DIED in page.get(f"/import/{job.pk}/progress").content.decode()
    assert_nothing_left(data_dir)


def test_an_import_that_was_to_be_cancelled_when_its_worker_died_leaves_nothing(
    ada: User, git_server: GitServer, data_dir: Path, import_process: Start
) -> None:
    git_server.bytes_per_second = 128 * 1024
    job = enqueued(ada, source=source_of(git_server, "slow"))
    first = import_process().wait_ready()
    wait_for(lambda: is_receiving(job))
    first.signal(signal.SIGSTOP)
    fresh(job).cancel()
    first.kill()

    assert import_process("--burst").wait() == 0

    assert fresh(job).status == "cancelled"
    assert_nothing_left(data_dir)


def test_sigterm_in_the_middle_hands_the_import_back_unspent_and_leaves_nothing(
    ada: User, git_server: GitServer, data_dir: Path, import_process: Start
) -> None:
    job = enqueued(ada, source=source_of(git_server))
    process = import_process("--grace", "0.5").wait_ready()
    begun(job, git_server, data_dir)

    asked = time.monotonic()
    process.signal(signal.SIGTERM)
    assert process.wait() == 0

    assert time.monotonic() - asked < 6
    row = fresh(job)
    assert (row.status, row.attempts, row.due) == ("pending", 0, True)
    assert [line["outcome"] for line in row.attempt_log] == ["released"]
    assert row.progress_pct == 0
    assert_nothing_left(data_dir)


def test_sigterm_lets_an_import_finish_that_needs_only_a_moment(
    ada: User, git_server: GitServer, data_dir: Path, import_process: Start
) -> None:
    job = enqueued(ada, source=source_of(git_server))
    process = import_process("--grace", "20").wait_ready()
    begun(job, git_server, data_dir)
    process.signal(signal.SIGTERM)
    git_server.go_on.set()
    assert process.wait() == 0
    assert (fresh(job).status, fresh(job).attempts) == ("completed", 1)
    assert files(data_dir) == [f"{job.pk}.git"]


def test_git_does_not_outlive_its_killed_worker_when_the_server_is_silent(
    ada: User, git_server: GitServer, data_dir: Path, import_process: Start
) -> None:
    job = enqueued(ada, source=source_of(git_server))
    process = import_process().wait_ready()
    begun(job, git_server, data_dir)

    process.kill()

    wait_for(lambda: not programs(data_dir), seconds=10)
