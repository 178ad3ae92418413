"""Between what a caller of a task has in hand and its row."""

from typing import Any

from jobs.engine.models import TaskJob


def row(result: Any) -> TaskJob:
    return TaskJob.objects.get(pk=result.id)


def refreshed(result: Any) -> Any:
    result.refresh()
    return result


def claim() -> TaskJob:
    """The next task, as a worker called w gets it."""
    for suspects in (False, True):
        for job in TaskJob.objects.claim(1, worker="w", lease_seconds=30, suspects=suspects):
            return job
    raise AssertionError("nothing to claim")
