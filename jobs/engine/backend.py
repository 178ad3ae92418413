"""The `django.tasks` backend: any `@task` function becomes a row, in the caller's transaction.

    TASKS = {"default": {"BACKEND": "jobs.engine.backend.JobsBackend"}}

OPTIONS of an alias are those of `@job_options`, for all of its tasks that do not say otherwise.
"""

# The models are imported when they are needed: `@task` looks for its backend when a module is
# imported, which may be before Django has loaded any model.

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.tasks.backends.base import BaseTaskBackend
from django.tasks.exceptions import InvalidTask, InvalidTaskBackend, TaskResultDoesNotExist
from django.tasks.signals import task_enqueued
from django.utils import timezone
from django.utils.json import normalize_json
from django.utils.module_loading import import_string

from jobs.engine.arguments import check_json, has_moment
from jobs.engine.calls import Callee, columns_of, find, keys_of
from jobs.engine.conf import config
from jobs.engine.options import JobOptions, make_options
from jobs.engine.retry import Permanent
from jobs.engine.tasks import AnyTask, Call, JobTask, said_by

if TYPE_CHECKING:
    from jobs.engine.results import JobResult

PATH_CHARACTERS = 300


class JobsBackend(BaseTaskBackend):
    """Rows of TaskJob, run by `manage.py runworker`."""

    task_class = JobTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._fault = ""
        self._job_options = JobOptions()
        try:
            self._job_options = make_options(self.options, where="It")
            self._job_options.check_atomic()
        except (TypeError, ValueError) as error:
            # Said by the first task and by `manage.py check`, which could not look any further.
            self._fault = f"OPTIONS of TASKS[{alias!r}]: {error}"

    @property
    def job_options(self) -> JobOptions:
        """OPTIONS, checked; raises InvalidTaskBackend."""
        if self._fault:
            raise InvalidTaskBackend(self._fault)
        return self._job_options

    def check(self, **_kwargs: Any) -> list[CheckMessage]:
        found: list[CheckMessage] = []
        if self._fault:
            found.append(Error(self._fault, id="jobs_engine.E006"))
        if not apps.is_installed("jobs.engine"):
            hint = "Add “jobs.engine” to INSTALLED_APPS."
            found.append(
                Error(f"TASKS[{self.alias!r}] has no table.", hint=hint, id="jobs_engine.E007")
            )
        return found

    def validate_task(self, task: AnyTask) -> None:
        """The rules of the standard, and that the options go with the function."""
        options = said_by(task).over(self.job_options)
        if task.run_after is not None and not isinstance(task.run_after, datetime):
            raise InvalidTask(f"run_after must be a datetime, not {task.run_after!r}.")
        if task.run_after is not None and not has_moment(task.run_after):
            raise InvalidTask(f"run_after is {task.run_after}, which is no moment in UTC.")
        super().validate_task(task)
        if len(task.module_path) > PATH_CHARACTERS:
            raise InvalidTask(f"The path of a task has at most {PATH_CHARACTERS} characters.")
        # The limit of an alias is for all of its tasks: an atomic one takes what it may of it.
        stated = replace(options, max_running_seconds=said_by(task).max_running_seconds)
        try:
            stated.check_function(task.func, takes_context=task.takes_context)
        except (TypeError, ValueError) as error:
            raise InvalidTask(str(error)) from error

    def enqueue(self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> "JobResult":
        """One INSERT in the caller's transaction: if that rolls back, there was no task."""
        from jobs.engine.task_job import TaskJob

        (columns,) = self._rows(task, [(args, kwargs)])
        job = TaskJob.objects.enqueue(**columns)
        return self._enqueued(task, [job])[0]

    def enqueue_many(self, task: AnyTask, calls: Iterable[Call]) -> "list[JobResult]":
        """Enqueue a call for each (args, kwargs), 1,000 to a statement, all or none of them."""
        from jobs.engine.task_job import TaskJob

        jobs = TaskJob.objects.enqueue_many(self._rows(task, calls))
        return self._enqueued(task, jobs)

    def get_result(self, result_id: str) -> "JobResult":
        """What became of a task, whichever alias it was enqueued with."""
        from jobs.engine.results import result_of
        from jobs.engine.task_job import TaskJob

        job = TaskJob.objects.filter(pk=_uuid(result_id)).first()
        if job is None:
            raise TaskResultDoesNotExist(f"There is no task with the id {result_id}.")
        try:
            callee = find(job.task)
        except Permanent as error:
            raise TaskResultDoesNotExist(f"{result_id}: {error}") from error
        except Exception as error:
            raise TaskResultDoesNotExist(
                f"{result_id}: {job.task} cannot be imported: {type(error).__name__}: {error}"
            ) from error
        if callee.task is None:
            raise TaskResultDoesNotExist(f"{result_id}: {job.task} is a function, not a task.")
        return result_of(job, callee.task)

    def _rows(self, task: AnyTask, calls: Iterable[Call]) -> list[dict[str, Any]]:
        """The columns of each call; raises InvalidTask, or TypeError or ValueError for arguments."""
        self.validate_task(task)
        _check_path(task)
        callee = Callee(task.module_path, task.func, task)
        options = said_by(task).over(self.job_options)
        common = columns_of(callee, options, alias=self.alias)
        if task.run_after is not None and task.run_after > timezone.now():
            common["run_at"] = task.run_after
        rows = []
        for number, call in enumerate(calls):
            args, kwargs = _call(call, number)
            payload = {"args": _json(args, "args"), "kwargs": _json(kwargs, "kwargs")}
            keys = keys_of(callee, options, payload["args"], payload["kwargs"])
            rows.append({**common, **keys, "payload": payload})
        return rows

    def _enqueued(self, task: AnyTask, jobs: Iterable[Any]) -> "list[JobResult]":
        from jobs.engine.results import result_of

        results = [result_of(job, task) for job in jobs]
        for result in results:
            if not result.duplicate:
                object.__setattr__(result, "task", task)
                task_enqueued.send_robust(type(self), task_result=result)
        return results


def _call(call: Any, number: int) -> Call:
    """A call as it was given; raises TypeError for what is no (args, kwargs)."""
    match call:
        case (Sequence() as args, Mapping() as kwargs) if not isinstance(args, str | bytes):
            return args, kwargs
    raise TypeError(f"calls[{number}] must be (args, kwargs) such as ((1, 2), {{}}), not {call!r}.")


def _uuid(text: object) -> uuid.UUID:
    try:
        return uuid.UUID(str(text))
    except ValueError:
        raise TaskResultDoesNotExist(f"{text!r} is no id of a task.") from None


def _check_path(task: AnyTask) -> None:
    """Raise InvalidTask unless a worker that has only the path finds this task there."""
    if task.module_path.startswith("__main__."):
        raise InvalidTask(
            f"{task.module_path} is in the program that runs now, which a worker cannot import: "
            "put the function into a module."
        )
    try:
        found = import_string(task.module_path)
    except ImportError:
        found = None
    if getattr(found, "func", None) is not task.func:
        raise InvalidTask(
            f"{task.module_path} is not this task. A worker finds a task by the name of its "
            "function, so write @task on the function."
        )


def _json(value: Any, name: str) -> Any:
    """The arguments as the standard makes them JSON; the error names the one that is none."""
    try:
        normal = normalize_json(value)
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply to be stored as JSON.") from None
    except TypeError as error:
        try:
            check_json(value, name=name, max_bytes=config().max_payload_bytes)
        except (TypeError, ValueError) as named:
            raise TypeError(f"{error}. {named}") from None
        raise
    check_json(normal, name=name, max_bytes=config().max_payload_bytes)
    return normal
