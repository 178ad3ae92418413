"""People, signed-in browsers, and import jobs in every state."""

import random
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.test import Client

from accounts.models import User
from jobs.models import ImportJob
from jobs.models.import_job import keys_of
from repositories import importing
from repositories.importing import Imported
from repositories.models import Repository
from tests import gitrepos
from tests.githttp import GitServer
from tests.jobs.mailing import by_postmark, by_smtp, queue, start_smtp
from tests.waiting import wait_for

__all__ = ["by_postmark", "by_smtp", "queue", "start_smtp"]

SOURCE = "https://example.org/ada/engine.git"


@pytest.fixture(autouse=True)
def data_dir(settings: Any, tmp_path: Path) -> Path:
    """Every test has a data directory of its own."""
    settings.FORGE_DATA_DIR = tmp_path / "data"
    return tmp_path / "data"


def person(handle: str, **more: Any) -> User:
    return User.objects.create_user(
        email=f"{handle}@example.org", handle=handle, password="mill & store", **more
    )


def browser(user: User, **options: Any) -> Client:
    """A browser in which the person is signed in."""
    client = Client(**options)
    client.force_login(user)
    return client


@pytest.fixture
def ada(db: None) -> User:
    return person("ada")


@pytest.fixture
def bob(db: None) -> User:
    return person("bob")


@pytest.fixture
def root(db: None) -> User:
    return person("root", is_staff=True, is_superuser=True)


@pytest.fixture
def page(ada: User) -> Client:
    """Ada's browser."""
    return browser(ada)


def enqueued(user: User, slug: str = "engine", *, source: str = SOURCE, **more: Any) -> ImportJob:
    """An import as the form makes it."""
    keys = keys_of(owner_id=user.pk, slug=slug, source_url=source, local=more.get("local", False))
    return ImportJob.objects.enqueue(user=user, slug=slug, source_url=source, **keys, **more)


def claimed(job: ImportJob) -> ImportJob:
    """The job as it is held by a worker."""
    rows = ImportJob.objects.filter(pk=job.pk)
    rows.update(rank=1000, concurrency_key="")
    suspect = fresh(job).suspect
    (held,) = ImportJob.objects.claim(
        1, worker=f"test:{job.pk}", lease_seconds=30, suspects=suspect
    )
    assert held.pk == job.pk
    rows.update(rank=0)
    return held


def failed(job: ImportJob, message: str = "The source is gone.") -> ImportJob:
    held = claimed(job)
    held.fail(held.log_entry("failed", ended_at=held.started_at, message=message))
    return fresh(job)


def retried(job: ImportJob, message: str = "The line is down.", *, delay: float) -> ImportJob:
    held = claimed(job)
    held.retry_later(delay, held.log_entry("failed", ended_at=held.started_at, message=message))
    return fresh(job)


def lost(job: ImportJob) -> ImportJob:
    """The job whose worker was just found dead."""
    held = claimed(job)
    assert [one.pk for one in ImportJob.objects.rescue(dead=[held.worker])] == [job.pk]
    return fresh(job)


def completed(job: ImportJob, *, notice: str = "") -> ImportJob:
    held = claimed(job)
    held.complete(imported(held, notice=notice))
    return fresh(job)


def imported(held: ImportJob, *, notice: str = "") -> Imported:
    """What `perform` would return: files of nothing in particular, aside."""
    path = importing.staging(held.pk, held.claim or "")
    path.mkdir()
    (path / "HEAD").write_text("ref: refs/heads/main\n")
    return Imported(
        path=path,
        final_url=held.source_url,
        default_branch="main",
        head_oid="",
        branch_count=0,
        tag_count=0,
        size_bytes=21,
        notice=notice,
    )


def fresh(job: ImportJob) -> ImportJob:
    return ImportJob.objects.get(pk=job.pk)


def files(data_dir: Path) -> list[str]:
    """What lies in the place of repositories, staging included."""
    place = data_dir / "repositories"
    inner = [*place.glob("*.git"), *place.glob(".staging/*")]
    return sorted(str(path.relative_to(place)) for path in inner)


def bulky(folder: Path, name: str = "bulky") -> Path:
    """A megabyte that nothing makes smaller, so that a transfer has a middle."""
    return gitrepos.small(folder, name, files={"noise": random.Random(7).randbytes(1 << 20)})


def programs(data_dir: Path) -> list[psutil.Process]:
    """The living git processes that work in the data directory of this test."""
    return [process for process in psutil.process_iter(["name"]) if _is_git_of(process, data_dir)]


def _is_git_of(process: psutil.Process, data_dir: Path) -> bool:
    if not process.info["name"].startswith("git"):
        return False
    try:
        # The programs that git starts itself have the directory in their environment only.
        told = [*process.cmdline(), *process.environ().values()]
    except psutil.Error:
        return False
    return any(str(data_dir) in text for text in told)


def source_of(git_server: GitServer, mode: str = "held") -> str:
    bulky(git_server.repositories)
    return git_server.url("bulky", mode)


def begun(job: ImportJob, git_server: GitServer, data_dir: Path) -> None:
    """Return when the job is in the middle of its transfer."""
    assert git_server.reached.wait(20)
    assert fresh(job).status == "running"
    assert programs(data_dir)
    assert files(data_dir)


def assert_nothing_left(data_dir: Path) -> None:
    wait_for(lambda: not programs(data_dir))
    assert files(data_dir) == []
    assert Repository.objects.count() == 0
