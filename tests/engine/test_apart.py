"""Jobs in a database of their own: promises of the whole, in processes that are set up so."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_for
from tests.workers import ROOT, test_database_url

Manage = Callable[..., str]
ENQUEUE_TWICE = """
from django.db import transaction
from jobs.engine.models import TaskJob
def enqueue():
    return TaskJob.objects.enqueue(task="operator.neg", payload={"args": [1]}, unique_key="one")
def told(*jobs):
    return [(str(job.pk), job.duplicate) for job in jobs]
with transaction.atomic():
    first = enqueue()
    try:
        with transaction.atomic():
            TaskJob.objects.enqueue(task="operator.neg", unique_key="undone")
            raise KeyError
    except KeyError:
        pass
    undone = TaskJob.objects.enqueue(task="operator.neg", unique_key="undone")
    second = enqueue()
with transaction.atomic():
    third = enqueue()
assert told(second, third) == [(str(first.pk), True)] * 2, told(first, second, third)
assert told(first, undone) == [(str(first.pk), False), (str(undone.pk), False)]
print(TaskJob.objects.filter(pk__in=[first.pk, undone.pk]).count(), TaskJob.objects.count())
"""
MADE_MEANWHILE = """
from django.db import transaction
from jobs.engine.models import TaskJob
with transaction.atomic():
    mine = TaskJob.objects.enqueue(task="operator.neg", unique_key="one")
    TaskJob(task="operator.neg", unique_key="one").save()
other = TaskJob.objects.get()
assert (mine.pk, mine.duplicate) == (other.pk, True)
print("the same")
"""
MANY_ONCE = """
from django.db import transaction
from jobs.engine.models import TaskJob
def rows(*keys):
    return [{"task": "operator.neg", "payload": {"args": [1]}, "unique_key": key} for key in keys]
stored = TaskJob.objects.enqueue(**rows("a")[0])
with transaction.atomic():
    promised = TaskJob.objects.enqueue(**rows("b")[0])
    many = TaskJob.objects.enqueue_many(rows("a", "b", "c", "c", None))
    TaskJob(task="operator.neg", unique_key="c").save()
    meanwhile = TaskJob.objects.get(unique_key="c")
    assert [job.duplicate for job in many] == [True, True, False, True, False]
assert [job.pk for job in many[:3]] == [stored.pk, promised.pk, meanwhile.pk]
print(TaskJob.objects.count(), many[2].duplicate)
"""
COUNT = "from jobs.engine.models import TaskJob; print(TaskJob.objects.filter(status='{}').count())"
ENQUEUE = """
from django.db import transaction
from jobs.engine.models import TaskJob
enqueue = lambda number: TaskJob.objects.enqueue(task="operator.neg", payload={"args": [number]})
enqueue(1)
with transaction.atomic():
    enqueue(2)
    assert TaskJob.objects.count() == 1
    TaskJob.objects.enqueue_many([{"task": "operator.neg", "payload": {"args": [3]}}])
try:
    with transaction.atomic():
        enqueue(4)
        raise KeyError
except KeyError:
    pass
print(sorted(TaskJob.objects.values_list("payload__args__0", flat=True)))
"""
RESULTS = (
    "from jobs.engine.models import TaskJob;"
    "print(sorted(TaskJob.objects.filter(status='completed').values_list('result', flat=True)))"
)


ATOMIC = """
from django.core.checks import run_checks
from django.tasks import task
from django.tasks.exceptions import InvalidTask
from jobs.engine.tasks import job_options
def write(): ...
def refused(declare):
    try:
        declare(write)
    except (ValueError, InvalidTask) as error:
        return str(error)
for declare in (job_options(atomic=True), task(atomic=True)):
    assert "atomic: jobs live in DATABASES['jobs']" in refused(declare), refused(declare)
assert refused(job_options(atomic=False)) is None
from jobs.engine.models import TaskJob
TaskJob.atomic = True
print([message.id for message in run_checks() if message.id == "jobs_engine.E009"])
"""
ATOMIC_ALIAS = """
from django.test import override_settings
from django.tasks import task
from django.tasks.exceptions import InvalidTaskBackend
options = {"BACKEND": "jobs.engine.backend.JobsBackend", "OPTIONS": {"atomic": True}}
with override_settings(TASKS={"default": options}):
    try:
        task(print)
    except InvalidTaskBackend as error:
        print(error)
"""


@pytest.fixture
def environment(transactional_db: None, tmp_path: Path) -> dict[str, str]:
    """The test's database as the default one, and a file of the jobs' own."""
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "forge.settings",
        "DATABASE_URL": test_database_url(),
        "JOBS_DATABASE_URL": f"sqlite:///{tmp_path / 'jobs.sqlite3'}",
        "FORGE_DATA_DIR": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }


@pytest.fixture
def manage(environment: dict[str, str]) -> Manage:
    def run(*arguments: str) -> str:
        command = [sys.executable, ROOT / "manage.py", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


def test_jobs_live_apart_follow_the_callers_transaction_and_run(
    manage: Manage, environment: dict[str, str]
) -> None:
    manage("migrate", "--database", "jobs", "-v0")
    assert (
        "I001"
        in subprocess.run(
            [sys.executable, ROOT / "manage.py", "check"],
            env=environment,
            capture_output=True,
            text=True,
        ).stderr
    )

    # What was rolled back never ran; what committed came after the commit.
    assert json.loads(manage("shell", "-v0", "-c", ENQUEUE)) == [1, 2, 3]
    manage("runworker", "--burst")
    assert json.loads(manage("shell", "-v0", "-c", RESULTS)) == [-3, -2, -1]


def test_one_key_makes_one_job_before_and_after_the_commit(manage: Manage) -> None:
    manage("migrate", "--database", "jobs", "-v0")
    assert manage("shell", "-v0", "-c", ENQUEUE_TWICE) == "2 2"
    manage("runworker", "--burst")
    manage("shell", "-v0", "-c", "from jobs.engine.models import *; TaskJob.objects.all().delete()")
    assert manage("shell", "-v0", "-c", MADE_MEANWHILE) == "the same"
    manage("shell", "-v0", "-c", "from jobs.engine.models import *; TaskJob.objects.all().delete()")
    assert manage("shell", "-v0", "-c", MANY_ONCE) == "4 True"


def test_one_worker_serves_both_databases_and_stops_as_one(
    manage: Manage, environment: dict[str, str]
) -> None:
    manage("migrate", "--database", "jobs", "-v0")
    worker: Any = subprocess.Popen(
        [sys.executable, ROOT / "manage.py", "runworker", "--kinds", "task,import"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        manage("shell", "-v0", "-c", ENQUEUE)
        wait_for(lambda: manage("shell", "-v0", "-c", COUNT.format("completed")) == "3", seconds=40)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(15) == 0
        assert "Traceback" not in worker.stderr.read()
    finally:
        worker.kill()
        worker.wait()
        worker.stderr.close()


def test_a_missing_table_is_told_with_the_command_that_makes_it(
    environment: dict[str, str],
) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "manage.py", "runworker", "--kinds", "task"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "run manage.py migrate --database jobs first" in done.stderr


def test_nothing_that_writes_to_the_default_database_is_atomic(manage: Manage) -> None:
    assert manage("shell", "-v0", "-c", ATOMIC) == "['jobs_engine.E009']"
    assert "JOBS['DATABASE']" in manage("shell", "-v0", "-c", ATOMIC_ALIAS)
