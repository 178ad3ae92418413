"""Any function as a job: its dotted path, and the arguments as JSON."""

import inspect
from collections.abc import Mapping
from typing import Any

from django.db import models
from django.utils.module_loading import import_string
from django.utils.translation import gettext_lazy as _

from jobs.engine.arguments import check_json
from jobs.engine.conf import config
from jobs.engine.execution import Run
from jobs.engine.lifecycle import Job
from jobs.engine.retry import Permanent


class TaskJob(Job):
    """A call of the function `task` with `payload`, {"args": […], "kwargs": {…}}."""

    kind = "task"

    task = models.CharField(_("task"), max_length=300, db_column="kind")
    payload = models.JSONField(_("arguments"), blank=True, default=dict)
    result = models.JSONField(_("result"), null=True, blank=True)

    class Meta(Job.Meta):
        app_label = "jobs_engine"
        verbose_name = _("task")
        verbose_name_plural = _("tasks")

    def __str__(self) -> str:
        return f"task {self.task} {self.pk}"

    def perform(self, run: Run) -> Any:
        """Call the function; what it returns must be JSON."""
        function = resolve(self.task)
        value = function(*self.payload.get("args", []), **self.payload.get("kwargs", {}))
        check_json(value, name="The result", max_bytes=config().max_payload_bytes)
        return value

    def on_completed(self, result: Any) -> Mapping[str, Any]:
        return {} if result is None else {"result": result}


def resolve(path: str) -> Any:
    """The function at a dotted path, or of the task there; raises Permanent."""
    try:
        found = import_string(path)
    except ImportError as error:
        raise Permanent(f"Unknown task {path}.") from error
    function = getattr(found, "func", found)
    if not inspect.isroutine(function) or inspect.iscoroutinefunction(function):
        raise Permanent(f"{path} is not a function that can be called as a task.")
    return function
