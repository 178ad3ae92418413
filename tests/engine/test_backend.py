"""The backend of django.tasks: what may be enqueued, by whom, and what the row says of it."""

import dataclasses
import importlib
import os
import pickle
import re
import subprocess
import sys
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection, transaction
from django.tasks import TaskContext, TaskResultStatus, default_task_backend, task, task_backends
from django.tasks.exceptions import (
    InvalidTask,
    InvalidTaskBackend,
    TaskResultDoesNotExist,
    TaskResultMismatch,
)
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs import engine
from jobs.engine.backend import JobsBackend
from jobs.engine.models import Schedule, TaskJob
from jobs.engine.schedules import database_now
from jobs.engine.testing import run_pending
from tests.engine import tasks_elsewhere
from tests.engine.task_rows import refreshed, row
from tests.kinds import tasks

ROOT = Path(__file__).parents[2]
LAST_MOMENT = datetime.max.replace(tzinfo=timezone.get_fixed_timezone(-300))
BACKEND = "jobs.engine.backend.JobsBackend"


def nested(times: int) -> list[Any]:
    deep: list[Any] = []
    for _ in range(times):
        deep = [deep]
    return deep


def test_the_backend_does_all_that_the_standard_knows() -> None:
    backend = task_backends["default"]
    assert isinstance(default_task_backend, type(backend)) or backend.alias == "default"
    assert isinstance(backend, JobsBackend)
    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_get_result
    assert backend.supports_priority


@pytest.mark.django_db
def test_enqueueing_is_one_insert() -> None:
    with (
        CaptureQueriesContext(
            connection,
        ) as queries,
        transaction.atomic(),
    ):
        tasks.add.enqueue(1, b=2)
    told = [q["sql"] for q in queries if not q["sql"].startswith(("SAVEPOINT", "RELEASE"))]
    told = [sql for sql in told if "pg_notify" not in sql]
    assert len(told) == 1
    assert told[0].startswith("INSERT")


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["noop", "noop_async"])
def test_a_new_result_is_ready_and_equal_to_the_one_that_is_read(name: str) -> None:
    called = getattr(tasks, name)
    result = called.enqueue(1, two=3)

    assert (result.status, result.attempts) == (TaskResultStatus.READY, 0)
    assert (result.task, result.backend) == (called, "default")
    assert (result.args, result.kwargs) == ([1], {"two": 3})
    assert (result.errors, result.worker_ids) == ([], [])
    assert (result.started_at, result.last_attempted_at, result.finished_at) == (None, None, None)
    assert isinstance(result.enqueued_at, datetime)
    assert not result.is_finished
    with pytest.raises(ValueError, match="not finished yet"):
        _ = result.return_value
    assert called.get_result(result.id) == result
    assert default_task_backend.get_result(result.id) == result
    before = dataclasses.asdict(result)
    result.refresh()
    assert dataclasses.asdict(result) == before
    assert result.job == row(result)


@pytest.mark.django_db(transaction=True)
def test_the_coroutine_forms_do_the_same() -> None:
    @async_to_sync
    async def use() -> tuple[Any, Any, Any]:
        result = await tasks.add.aenqueue(1, b=2)
        read = await tasks.add.aget_result(result.id)
        await result.arefresh()
        with pytest.raises(TaskResultDoesNotExist):
            await tasks.add.aget_result(str(uuid.uuid4()))
        with pytest.raises(TaskResultMismatch):
            await tasks.noop.aget_result(result.id)
        return result, read, await default_task_backend.aenqueue(tasks.noop, (), {})

    result, read, other = use()
    assert result == read
    assert row(other).task == "tests.kinds.tasks.noop"


@pytest.mark.django_db(transaction=True)
def test_an_enqueue_belongs_to_the_callers_transaction() -> None:
    with pytest.raises(KeyError), transaction.atomic():
        tasks.noop.enqueue()
        tasks.noop.enqueue_many([((), {})] * 3)
        assert TaskJob.objects.count() == 4
        raise KeyError
    assert not TaskJob.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("args", "kwargs", "error", "words"),
    [
        ((1, datetime.now(UTC)), {}, TypeError, r"Unsupported type.*args\[1\] is a datetime"),
        ((), {"when": {1}}, TypeError, r"Unsupported type.*kwargs\['when'\] is a set"),
        (([1, object()],), {}, TypeError, r"Unsupported type.*args\[0\]\[1\] is a object"),
        ((float("nan"),), {}, ValueError, r"args\[0\] is nan"),
        (("a\0b",), {}, ValueError, r"args\[0\] holds a NUL"),
        (({1: 2},), {}, TypeError, r"args\[0\] has the key 1"),
        ((b"\xff",), {}, ValueError, "Unsupported value"),
        (("x" * 2_000_000,), {}, ValueError, "args takes 2000004 bytes"),
        ((nested(3_000),), {}, ValueError, "args is nested too deeply"),
        ((), {"deep": nested(3_000)}, ValueError, "kwargs is nested too deeply"),
        ((10**5000,), {}, ValueError, r"args\[0\] is a whole number of more than 4300 digits"),
    ],
)
def test_arguments_that_are_no_json_are_refused_at_the_call(
    args: Any, kwargs: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        tasks.noop.enqueue(*args, **kwargs)
    with pytest.raises(error, match=words):
        tasks.noop.enqueue_many([((1,), {}), (args, kwargs)])
    assert not TaskJob.objects.exists()


@pytest.mark.django_db
def test_arguments_become_json_as_the_standard_says() -> None:
    result = tasks.noop.enqueue((1, 2), b"text")
    assert result.args == [[1, 2], "text"]
    assert row(result).payload == {"args": [[1, 2], "text"], "kwargs": {}}


class Stall:
    @staticmethod
    def sell() -> None: ...

    def buy(self) -> None: ...


@pytest.mark.django_db
def test_only_functions_of_a_module_become_tasks() -> None:
    def nested() -> None: ...

    for function in (any, lambda: None, nested, Stall().buy):
        with pytest.raises(InvalidTask, match="module level"):
            task()(function)
    with pytest.raises(InvalidTask, match="first argument of 'context'"):
        task(takes_context=True)(tasks.plain)
    with pytest.raises(InvalidTask, match="priority must be a whole number"):
        task(priority=-101)(tasks.plain)
    with pytest.raises(TypeError, match="run_after cannot be defined statically"):
        task(run_after=timezone.now())(tasks.plain)


@pytest.mark.django_db
def test_a_task_that_is_not_where_a_worker_looks_is_refused_at_the_call() -> None:
    elsewhere = task(tasks.plain)
    method = task(Stall.sell)
    for hidden in (elsewhere, method):
        with pytest.raises(InvalidTask, match="A worker finds a task by the name"):
            hidden.enqueue(1)
    # Another task of the same function is no matter: its row finds the function all the same.
    assert task(priority=9)(tasks.add.func).enqueue(1).task.priority == 9


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"queue_name": "nowhere"}, "Queue 'nowhere' is not valid for backend"),
        ({"run_after": datetime(2027, 1, 1)}, "run_after must be an aware datetime"),  # noqa: DTZ001
        ({"run_after": LAST_MOMENT}, "run_after is 9999-.*, which is no moment in UTC"),
        ({"run_after": "tomorrow"}, "run_after must be a datetime, not 'tomorrow'"),
        ({"priority": 101}, "priority must be a whole number"),
        ({"priority": 3.1}, "priority must be a whole number"),
    ],
)
def test_what_using_may_not_say(change: Any, words: str) -> None:
    with pytest.raises(InvalidTask, match=words):
        tasks.noop.using(**change)


@pytest.mark.django_db
def test_a_queue_that_was_taken_away_is_refused_at_the_call() -> None:
    mailed = tasks.noop.using(queue_name="mail")
    with override_settings(TASKS={"default": {"BACKEND": BACKEND}}):
        with pytest.raises(InvalidTask, match="Queue 'mail'"):
            mailed.enqueue()
        with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": []}}):
            assert row(mailed.using(queue_name="any").enqueue()).queue_name == "any"


@pytest.mark.django_db
def test_priorities_and_times_go_to_the_row() -> None:
    late = timezone.now() + timedelta(hours=1)
    result = tasks.noop.using(priority=-100, run_after=late, queue_name="slow").enqueue()
    job = row(result)
    assert (job.priority, job.rank, job.queue_name) == (-100, -100, "slow")
    assert (job.due, job.run_at) == (False, late)
    assert default_task_backend.get_result(result.id) == result

    urgent = tasks.noop.using(priority=100).enqueue()
    assert [str(j.pk) for j in TaskJob.objects.claim(9, worker="w", lease_seconds=9)] == [urgent.id]


@pytest.mark.django_db
def test_a_time_in_the_past_is_now() -> None:
    result = tasks.add.using(run_after=timezone.now() - timedelta(days=1)).enqueue(1)
    assert row(result).due
    run_pending(TaskJob)
    assert refreshed(result).return_value == 1


@pytest.mark.django_db
def test_many_calls_are_one_statement_and_all_or_none() -> None:
    with CaptureQueriesContext(connection) as queries:
        results = tasks.add.enqueue_many(((n,), {"b": 1}) for n in range(500))
    inserts = [q["sql"] for q in queries if q["sql"].startswith("INSERT")]
    assert len(inserts) == 1
    assert [result.args for result in results] == [[n] for n in range(500)]
    assert all(isinstance(result.enqueued_at, datetime) for result in results)
    assert tasks.add.get_result(results[3].id) == results[3]
    run_pending(TaskJob)
    assert [refreshed(result).return_value for result in results[:3]] == [1, 2, 3]
    assert task_backends["default"].enqueue_many(tasks.add, []) == []


@pytest.mark.django_db
@pytest.mark.parametrize("call", [((1,),), 3, ((1,), None), ("ab", {}), None], ids=str)
def test_a_call_that_is_no_args_and_kwargs_is_told_by_its_number(call: Any) -> None:
    with pytest.raises(TypeError, match=r"calls\[1\] must be \(args, kwargs\)"):
        tasks.noop.enqueue_many([((1,), {}), call])
    assert not TaskJob.objects.exists()


@pytest.mark.django_db
def test_a_task_of_the_running_program_is_refused_at_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def own() -> None: ...

    own.__module__, own.__qualname__ = "__main__", "own"
    declared = task(own)
    monkeypatch.setattr(sys.modules["__main__"], "own", declared, raising=False)
    with pytest.raises(InvalidTask, match=r"__main__.own is in the program that runs now"):
        declared.enqueue()


@pytest.mark.django_db
def test_a_result_whose_module_raises_at_import_is_told_by_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_tasks.py").write_text("raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(tmp_path)
    job = TaskJob.objects.enqueue(task="broken_tasks.report")
    words = f"{job.pk}: broken_tasks.report cannot be imported: RuntimeError: no licence"
    with pytest.raises(TaskResultDoesNotExist, match=words):
        default_task_backend.get_result(str(job.pk))


# Pickles, other backends, other aliases.


@pytest.mark.django_db
def test_tasks_and_results_survive_a_pickle() -> None:
    for called in (
        tasks.add,
        tasks.report,
        tasks.by_keyword,
        tasks.by_keyword_functions.using(priority=3),
    ):
        assert pickle.loads(pickle.dumps(called)) == called
    result = tasks.add.enqueue(1)
    run_pending(TaskJob)
    again = pickle.loads(pickle.dumps(refreshed(result)))
    assert again == result
    assert again.return_value == 1
    with pytest.raises(ValueError, match="to point to a Task instance"):
        type(tasks.add)._reconstruct({"func": "builtins.any"})


@pytest.mark.django_db
@pytest.mark.parametrize(
    "name", ["report", "once", "keyed", "by_keyword", "write_nothing_atomically"]
)
def test_other_backends_run_tasks_with_options_as_if_they_had_none(name: str) -> None:
    called = getattr(tasks, name, tasks_elsewhere.write_nothing_atomically)
    args = [1] if name in ("report", "once", "keyed") else []
    immediate = "django.tasks.backends.immediate.ImmediateBackend"
    with override_settings(TASKS={"default": {"BACKEND": immediate}}):
        assert called.enqueue(*args).status == TaskResultStatus.SUCCESSFUL
        (result,) = tasks.by_keyword.enqueue_many([((), {})])
        assert result.status == TaskResultStatus.SUCCESSFUL
    dummy = "django.tasks.backends.dummy.DummyBackend"
    with override_settings(TASKS={"default": {"BACKEND": dummy}}):
        result = called.enqueue(*args)
        assert result.status == TaskResultStatus.READY
        assert default_task_backend.results == [result]
    assert not TaskJob.objects.exists()


@pytest.mark.django_db
def test_a_context_can_be_had_of_any_backend() -> None:
    ours = tasks.tell_anybody.enqueue()
    run_pending(TaskJob)
    job = row(ours)
    assert (job.result, job.progress_step, job.log) == ("attempt 1", "halfway", "a line\n")

    immediate = "django.tasks.backends.immediate.ImmediateBackend"
    with override_settings(TASKS={"default": {"BACKEND": immediate}}):
        assert tasks.tell_anybody.enqueue().return_value == "attempt 1"
        for asking in (tasks.ask_for_the_job, tasks.ask_for_a_program):
            (error,) = asking.enqueue().errors
            assert "Another backend than JobsBackend runs this task" in error.traceback
    dummy = "django.tasks.backends.dummy.DummyBackend"
    with override_settings(TASKS={"default": {"BACKEND": dummy}}):
        result = tasks.tell_anybody.enqueue()
        context = TaskContext(task_result=result)
        assert tasks.tell_anybody.func(context) == "attempt 0"


@pytest.mark.django_db
def test_a_task_that_was_declared_for_another_backend_moves_by_one_setting() -> None:
    assert type(tasks_elsewhere.declared_elsewhere).__name__ == "Task"
    result = tasks_elsewhere.declared_elsewhere.enqueue(4)
    assert row(result).max_attempts == 6
    assert [r.args for r in default_task_backend.enqueue_many(result.task, [((5,), {})])] == [[5]]
    run_pending(TaskJob)
    assert refreshed(result).return_value == 4


@pytest.mark.django_db
def test_each_alias_has_options_and_results_of_its_own() -> None:
    result, less = tasks.patient.enqueue(), tasks.less_patient.enqueue()
    job = row(result)
    assert (job.backend, job.max_attempts, job.keep_days) == ("patient", 7, 30)
    assert row(less).max_attempts == 2
    assert result.backend == "patient"
    run_pending(TaskJob)
    assert 50 < (row(result).run_at - database_now()).total_seconds() < 70
    moved = tasks.patient.using(backend="default").enqueue()
    assert (moved.backend, row(moved).max_attempts) == ("default", 3)
    # The store is one: a result is found by whichever alias.
    assert default_task_backend.get_result(result.id).backend == "patient"


@pytest.mark.django_db
def test_a_row_is_readable_when_its_queue_and_alias_are_gone() -> None:
    result = tasks.patient.enqueue()
    mailed = tasks.noop.using(queue_name="mail").enqueue()
    with override_settings(TASKS={"default": {"BACKEND": BACKEND}}):
        assert default_task_backend.get_result(mailed.id).task.queue_name == "mail"
        assert default_task_backend.get_result(result.id).backend == "patient"
        run_pending(TaskJob)
        assert row(mailed).status == "completed"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_attempts": 0}, "max_attempts must be a whole number from 1"),
        ({"attempts": 3}, "has no option attempts. Options: max_attempts"),
        ({3: 3}, "has no option 3. Options: max_attempts"),
        ([], r"OPTIONS of TASKS\['default'\]: It takes options by name, not \[\]"),
        ({"atomic": True, "max_running_seconds": 100}, "an atomic task is at most 10"),
    ],
)
def test_wrong_options_of_an_alias_are_told_by_check_and_by_the_first_task(
    options: dict[str, Any], words: str
) -> None:
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "OPTIONS": options}}):
        with pytest.raises(SystemCheckError, match=words):
            call_command("check")
        with pytest.raises(InvalidTaskBackend, match=words):
            task(tasks.plain)
        with pytest.raises(InvalidTaskBackend, match=words):
            tasks.noop.enqueue()
        with pytest.raises(ValueError, match=words):
            TaskJob.objects.enqueue(task="tests.kinds.tasks.noop")


def test_check_asks_for_the_app() -> None:
    assert task_backends["default"].check() == []
    with override_settings(INSTALLED_APPS=["django.contrib.contenttypes"]):
        (error,) = task_backends["default"].check()
    assert error.id == "jobs_engine.E007"


# By path, and by schedule.


@pytest.mark.django_db
def test_a_schedule_runs_a_task_with_its_queue_priority_and_options() -> None:
    # The built-in ones tick by the clock.
    Schedule.objects.all().delete()
    for name, columns in {
        "mail": {"task": "tests.kinds.tasks.mailed"},
        "report": {"task": "tests.kinds.tasks.report", "payload": {"args": [2026]}},
    }.items():
        schedule = Schedule(name=name, cron="* * * * *", columns=columns)
        schedule.full_clean()
        schedule.save()
    Schedule.objects.filter(name__in=["mail", "report"]).update(
        next_at=timezone.now() - timedelta(seconds=1)
    )
    mail, report = sorted(Schedule.objects.tick(), key=lambda job: job.task)
    assert isinstance(mail, TaskJob)
    assert isinstance(report, TaskJob)
    assert (mail.queue_name, mail.priority, mail.backend) == ("mail", 7, "default")
    assert (report.max_attempts, report.keep_days) == (5, 90)
    assert report.unique_key == "tests.kinds.tasks.report:report-2026"
    run_pending(TaskJob)
    assert default_task_backend.get_result(str(mail.pk)).return_value == "sent"


@pytest.mark.django_db
@pytest.mark.parametrize(
    "payload", [[], {"arguments": []}, {"args": 1}, {"kwargs": []}, {"args": "abc"}, "x"]
)
def test_a_payload_of_another_shape_is_refused_at_the_call(payload: Any) -> None:
    with pytest.raises(TypeError, match="payload must be"):
        TaskJob.objects.enqueue(task="tests.kinds.tasks.plain", payload=payload)


@pytest.mark.django_db
def test_what_a_caller_states_stands_over_what_the_task_says() -> None:
    job = TaskJob.objects.enqueue(
        task="tests.kinds.tasks.report",
        payload={"args": [1]},
        max_attempts=1,
        queue_name="slow",
        unique_key=None,
        backend="patient",
    )
    assert (job.max_attempts, job.queue_name, job.unique_key) == (1, "slow", None)
    assert (job.backend, job.keep_days, job.max_running_seconds) == ("patient", 90, 40)
    assert job.concurrency_key == "|host:here=2|"


@pytest.mark.django_db
def test_a_path_that_leads_nowhere_is_told_by_the_worker() -> None:
    for path in ("shop.gone", "tests.kinds.tasks.nothing", "x"):
        job = TaskJob.objects.enqueue(task=path)
        run_pending(TaskJob)
        assert TaskJob.objects.get(pk=job.pk).error_message == f"Unknown task {path}."


# What is written about it.


@pytest.mark.django_db
def test_the_example_in_the_readme_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (Path(engine.__path__[0]) / "README.md").read_text()
    (example,) = re.findall(r"^```py\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    (tmp_path / "readme_tasks.py").write_text(example)
    monkeypatch.syspath_prepend(tmp_path)
    report = importlib.import_module("readme_tasks").report
    result, again, early = report.enqueue(2026), report.enqueue(2026), report.enqueue(1999)
    assert (again.id, again.duplicate) == (result.id, True)
    run_pending(TaskJob)
    assert refreshed(result).return_value == 2026 * 12
    assert row(result).progress_step == "month 12"
    assert row(early).error_message == "There are no figures from before 2000."


def test_a_task_may_be_declared_before_any_model_is_loaded() -> None:
    code = (
        "from django.tasks import task; from jobs.engine.tasks import JobContext, job_options\n"
        "import json\n"
        "task(job_options(max_attempts=3)(json.dumps)); print(task(max_attempts=2)(json.dumps).name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "dumps", done.stderr
