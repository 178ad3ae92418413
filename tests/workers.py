"""Workers for tests: in this process, or real processes that can be killed."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now

from jobs.engine.conf import config
from jobs.engine.lifecycle import Job
from jobs.engine.worker import Worker
from tests.kinds.models import Chain, Probe

ROOT = Path(__file__).parents[1]


def status_of(job: Job) -> str:
    return str(type(job).objects.values_list("status", flat=True).get(pk=job.pk))


def has_status(job: Job, status: str) -> Callable[[], bool]:
    return lambda: status_of(job) == status


def age_lease(job: Job, *, seconds: float = 60) -> None:
    """Make the lease of a running job end that long ago."""
    type(job).objects.filter(pk=job.pk).update(lease_until=Now() - timedelta(seconds=seconds))


def make_due(kind: type[Job] = Probe) -> None:
    """Bring what waits for a later time to now."""
    kind.objects.filter(status="pending", due=False).update(
        run_at=Now() - timedelta(seconds=1), priority=F("priority")
    )


def test_database_url() -> str:
    """The URL by which another process reaches the database of this test run."""
    name = connection.settings_dict["NAME"]
    if connection.vendor == "sqlite":
        return f"sqlite:///{name}"
    values = connection.settings_dict
    return f"postgresql://{values['USER']}@{values['HOST']}:{values['PORT']}/{name}"


test_database_url.__test__ = False  # type: ignore[attr-defined]


def command_line(*arguments: str) -> list[str]:
    """`manage.py` with these arguments."""
    return [sys.executable, str(ROOT / "manage.py"), *arguments]


# As from a terminal, also when the tests run in the background, where shells ignore signals.
HEEDING_SIGNALS = ("env", "--default-signal=INT,HUP,TERM")


def command_environment(**more: str) -> dict[str, str]:
    """What makes a process of its own work on the database and the files of this test."""
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "DATABASE_URL": test_database_url(),
        "FORGE_DATA_DIR": str(settings.FORGE_DATA_DIR),
        "PYTHONPATH": str(ROOT),
        **more,
    }


IMPATIENT = {"TEST_SECONDS_TO_OBEY": "0.5"}
"""For a worker process that gives up soon what ignores its end."""


class WorkerProcess:
    """A real `manage.py runworker`."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            # What the checks say is tested elsewhere, and they take a third of the time to start.
            command_line("runworker", *arguments, "--skip-checks"),
            env=command_environment(**environment),
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log: list[str] = []
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.log.append(line)
            if "is ready" in line:
                self._ready.set()
        self._ready.set()

    def wait_ready(self) -> "WorkerProcess":
        assert self._ready.wait(20) and self.process.poll() is None, self.log
        return self

    def has_said(self, words: str) -> bool:
        return any(words in line for line in self.log)

    @property
    def complaints(self) -> list[str]:
        """What it has written that is more than for information."""
        return [line for line in self.log if "is ready" not in line and " INFO " not in line]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = 20) -> int:
        code = self.process.wait(seconds)
        self._reader.join(5)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()
        self._reader.join(5)
        if self.process.stderr:
            self.process.stderr.close()


@pytest.fixture
def worker_process(transactional_db: None) -> Iterator[Callable[..., WorkerProcess]]:
    """Start `runworker` with these arguments and environment variables."""
    started: list[WorkerProcess] = []

    def start(*arguments: str, **environment: str) -> WorkerProcess:
        started.append(WorkerProcess(*arguments, **environment))
        return started[-1]

    yield start
    for process in started:
        process.close()


@pytest.fixture
def worker(transactional_db: None) -> Iterator[Callable[..., Worker]]:
    """Start a worker in a thread of this process."""
    started: list[tuple[Worker, threading.Thread]] = []

    def start(*kinds: type[Job], **options: Any) -> Worker:
        worker = Worker(kinds or (Probe, Chain), **options)
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        started.append((worker, thread))
        return worker

    yield start
    for worker, _thread in started:
        worker.stop()
        worker.stop()
    for _worker, thread in started:
        thread.join(20)
        assert not thread.is_alive()


def run_due(*kinds: type[Job], **options: Any) -> int:
    """Run in this process what is due and what that enqueues; returns the exit code."""
    return Worker(kinds or (Probe, Chain), burst=True, **options).run()


@pytest.fixture
def jobs_settings(settings: Any) -> Iterator[Callable[..., None]]:
    """Override keys of JOBS for one test."""

    def override(**values: Any) -> None:
        settings.JOBS = {**settings.JOBS, **values}

    yield override
    config.cache_clear()
