"""Any function as a job: its dotted path, and the arguments as JSON."""

import inspect
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from django.db import models
from django.db.models import Q
from django.dispatch import Signal
from django.tasks import DEFAULT_TASK_BACKEND_ALIAS, DEFAULT_TASK_QUEUE_NAME, task_backends
from django.tasks.signals import task_finished, task_started
from django.utils.json import normalize_json
from django.utils.translation import gettext_lazy as _

from jobs.engine.arguments import check_json
from jobs.engine.calls import Callee, completed, find
from jobs.engine.conf import config
from jobs.engine.execution import Run
from jobs.engine.lifecycle import Job, JobQuerySet
from jobs.engine.options import JobOptions
from jobs.engine.results import JobResult, result_of
from jobs.engine.retry import Permanent, backoff
from jobs.engine.tasks import JobContext

logger = logging.getLogger(__name__)


class TaskQuerySet(JobQuerySet["TaskJob"]):
    def born(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Also fills what the task says of its options; raises TypeError for a wrong payload."""
        check_payload(columns.get("payload", {}))
        return super().born(completed(columns))


class TaskJob(Job):
    """A call of the function `task` with `payload`, {"args": […], "kwargs": {…}}."""

    kind = "task"
    queued = True
    retention_column = "keep_days"

    task = models.CharField(_("task"), max_length=300, db_column="kind")
    payload = models.JSONField(_("arguments"), blank=True, default=dict)
    # With defaults in the database too, for processes that run on while it is migrated.
    queue_name = models.CharField(
        _("queue"),
        max_length=100,
        default=DEFAULT_TASK_QUEUE_NAME,
        db_default=DEFAULT_TASK_QUEUE_NAME,
    )
    backend = models.CharField(
        _("alias in TASKS"),
        max_length=100,
        default=DEFAULT_TASK_BACKEND_ALIAS,
        db_default=DEFAULT_TASK_BACKEND_ALIAS,
    )
    keep_days = models.FloatField(_("days to be kept"), null=True, blank=True)
    result = models.JSONField(_("result"), null=True, blank=True)

    objects = TaskQuerySet.as_manager()  # type: ignore[misc]  # wider than that of Job

    class Meta(Job.Meta):
        app_label = "jobs_engine"
        verbose_name = _("task")
        verbose_name_plural = _("tasks")
        indexes = [
            *Job.Meta.indexes,
            # Led by a column that a claim compares with one value: a list would sort the backlog.
            models.Index(
                fields=["queue_name", "-rank", "run_at", "id"],
                condition=Q(status="pending", due=True),
                name="jobs_engine_taskjob_queue",
            ),
            models.Index(
                fields=["keep_days", "completed_at"],
                condition=Q(status__in=["completed", "failed", "cancelled"]),
                name="jobs_engine_taskjob_keep",
            ),
        ]

    def __str__(self) -> str:
        return f"task {self.task} {self.pk}"

    def perform(self, run: Run) -> Any:
        """Call the function; what it returns must be JSON."""
        callee = find(self.task)
        self._announce(task_started, callee)
        call = partial(callee.function, *self._context(run, callee), *self.args, **self.kwargs)
        if inspect.iscoroutinefunction(callee.function):
            return stored(run.wait_for(call))
        return stored(call())

    def on_completed(self, result: Any) -> Mapping[str, Any]:
        return {} if result is None else {"result": result}

    def has_follow_up(self, result: Any) -> bool:
        return result is not None

    def on_over(self) -> None:
        try:
            callee = find(self.task)
        except Permanent:
            return
        self._announce(task_finished, callee)

    def backoff(self, attempt: int) -> float:
        wait = self._options().backoff
        if wait is None:
            return super().backoff(attempt)
        if not callable(wait):
            return backoff(attempt, base=wait, cap=config().backoff_cap_seconds)
        try:
            return float(wait(attempt))
        except Exception:
            logger.exception("%s: its own back-off does not work; the usual one is taken", self)
            return super().backoff(attempt)

    def runs_atomically(self) -> bool:
        return bool(self._options().atomic)

    @property
    def args(self) -> list[Any]:
        found: list[Any] = self.payload.get("args", [])
        return found

    @property
    def kwargs(self) -> dict[str, Any]:
        found: dict[str, Any] = self.payload.get("kwargs", {})
        return found

    def _options(self) -> JobOptions:
        try:
            return find(self.task).options(self.backend)
        except Exception:
            # `perform` meets the same and says it.
            return JobOptions()

    def _context(self, run: Run, callee: Callee) -> list[JobContext]:
        if callee.task is None or not callee.takes_context:
            return []
        return [JobContext(task_result=result_of(self, callee.task), run=run)]

    def _announce(self, signal: Signal, callee: Callee) -> None:
        """Tell the standard's receivers, whose faults are not this job's."""
        if callee.task is not None and signal.has_listeners(sender := self._sender()):
            result: JobResult = result_of(self, callee.task)
            signal.send_robust(sender=sender, task_result=result)

    def _sender(self) -> type:
        try:
            return type(task_backends[self.backend])
        except Exception:
            # The alias was taken out of TASKS while its jobs waited.
            return type(self)


def check_payload(payload: Any) -> None:
    """Raise TypeError unless it is {"args": […], "kwargs": {…}}, either of which may be missing."""
    right = (
        isinstance(payload, Mapping)
        and set(payload) <= {"args", "kwargs"}
        and isinstance(payload.get("args", []), list | tuple)
        and isinstance(payload.get("kwargs", {}), Mapping)
    )
    if not right:
        raise TypeError('payload must be {"args": […], "kwargs": {…}}.')


def stored(value: Any) -> Any:
    """What a task returned, as JSON; raises Permanent for what is none or too large."""
    try:
        value = normalize_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise Permanent(_unfit(value) or f"The result is not JSON: {error}.") from error
    if unfit := _unfit(value):
        raise Permanent(unfit)
    return value


def _unfit(value: Any) -> str:
    """Why a result cannot be stored, with the place; empty if it can."""
    try:
        check_json(value, name="The result", max_bytes=config().max_payload_bytes)
    except (TypeError, ValueError, RecursionError) as error:
        return str(error)
    return ""
