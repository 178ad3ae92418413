"""A row as a `TaskResult` of django.tasks."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from django.apps import apps
from django.tasks import TaskResultStatus
from django.tasks.base import TASK_REFRESH_ATTRS, TaskError
from django.tasks.exceptions import TaskResultDoesNotExist
from django.utils.dateparse import parse_datetime

from jobs.engine.history import Entry
from jobs.engine.retry import Cancelled, WorkerLost
from jobs.engine.row import Status
from jobs.engine.tasks import AnyResult, AnyTask
from jobs.engine.waiting import until_over

if TYPE_CHECKING:
    from jobs.engine.task_job import TaskJob

STATUSES = {
    Status.PENDING: TaskResultStatus.READY,
    Status.RUNNING: TaskResultStatus.RUNNING,
    Status.COMPLETED: TaskResultStatus.SUCCESSFUL,
    Status.FAILED: TaskResultStatus.FAILED,
    Status.CANCELLED: TaskResultStatus.FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult(AnyResult):  # type: ignore[misc]  # the stubs do not know that it is frozen
    """What became of a task: a snapshot, until `refresh()`."""

    duplicate: bool = field(default=False, compare=False)
    """True where `enqueue` found an equal job that was waiting or running, and made no new one."""

    @property
    def job(self) -> "TaskJob":
        """The row, as it is now; raises TaskResultDoesNotExist when it is gone."""
        kind: type[TaskJob] = apps.get_model("jobs_engine", "TaskJob")
        try:
            return kind.objects.get(pk=self.id)
        except kind.DoesNotExist:
            raise TaskResultDoesNotExist(f"There is no task {self.id} any more.") from None

    async def wait(self, timeout: float | None = None) -> Self:
        """This result, refreshed, as soon as the task is over; woken as live pages are.

        Raises TimeoutError after `timeout` seconds, and TaskResultDoesNotExist when it is gone.
        """
        kind: type[TaskJob] = apps.get_model("jobs_engine", "TaskJob")
        try:
            job = await until_over(kind, UUID(self.id), timeout=timeout)
        except kind.DoesNotExist as error:
            raise TaskResultDoesNotExist(str(error)) from None
        ended = result_of(job, self.task)
        for name in TASK_REFRESH_ATTRS:
            object.__setattr__(self, name, getattr(ended, name))
        return self


def result_of(job: "TaskJob", task: AnyTask) -> JobResult:
    """What a row says, as it is in memory; asks no database."""
    spent = job.spent_attempts
    started = spent[0]["started_at"] if spent and spent[0]["number"] == 1 else None
    result = JobResult(
        task=_as_enqueued(task, job),
        id=str(job.pk),
        status=STATUSES[Status(job.status)],
        enqueued_at=_moment(job.created_at),
        started_at=(_moment(started) or job.started_at) if job.attempts else None,
        finished_at=job.completed_at if job.is_over else None,
        last_attempted_at=job.started_at if job.attempts else None,
        args=job.payload.get("args", []),
        kwargs=job.payload.get("kwargs", {}),
        backend=job.backend,
        errors=list(_errors(job, spent)),
        worker_ids=_worker_ids(job, spent),
        duplicate=job.duplicate,
    )
    if job.status == Status.COMPLETED:
        object.__setattr__(result, "_return_value", job.result)
    return result


def _worker_ids(job: "TaskJob", spent: list[Entry]) -> list[str]:
    """One for each spent attempt; the newest need not have ended yet."""
    known = {entry["number"]: entry["worker"] for entry in spent}
    return [known.get(number, job.worker) for number in range(1, job.attempts + 1)]


def _errors(job: "TaskJob", spent: list[Entry]) -> Iterator[TaskError]:
    found = [_error(entry) for entry in spent]
    yield from found
    cancelled = _path(Cancelled)
    if job.status == Status.CANCELLED and cancelled not in [e.exception_class_path for e in found]:
        # Cancelled while it waited, or while its attempt ended in another way.
        yield TaskError(exception_class_path=cancelled, traceback=f"{cancelled}: Cancelled.\n")


def _error(entry: Entry) -> TaskError:
    path = entry["error_class"] or _path(WorkerLost)
    if "<locals>" in path:
        # A class from inside a function cannot be imported by its path.
        path = "builtins.Exception"
    return TaskError(
        exception_class_path=path, traceback=entry["traceback"] or f"{path}: {entry['message']}\n"
    )


def _path(error: type[BaseException]) -> str:
    return f"{error.__module__}.{error.__qualname__}"


def _as_enqueued(task: AnyTask, job: "TaskJob") -> AnyTask:
    """The task with queue, priority, time and alias of the row.

    Not by `using()`: a row is readable although its queue or alias was taken out of TASKS since.
    """
    copy: AnyTask = object.__new__(type(task))
    for column in fields(task):
        object.__setattr__(copy, column.name, getattr(task, column.name))
    waits = job.status == Status.PENDING and not job.attempts and not job.due
    row = {
        "queue_name": job.queue_name,
        "priority": job.priority,
        "backend": job.backend,
        "run_after": job.run_at if waits else None,
    }
    for name, value in row.items():
        object.__setattr__(copy, name, value)
    return copy


def _moment(value: Any) -> datetime | None:
    """A time of the row or its log; None for one that the database has yet to say."""
    if isinstance(value, str):
        return parse_datetime(value)
    return value if isinstance(value, datetime) else None
