"""Kinds whose jobs do what a test tells them to, so that one rule is tried on each of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from jobs.engine.lifecycle import Job
from jobs.engine.models import TaskJob
from jobs.engine.row import uuid7
from tests.kinds.models import Probe


@dataclass(frozen=True, slots=True)
class Scripted:
    """A kind, and the columns that make its jobs follow a script of `tests.kinds.scripts`."""

    model: type[Job]
    columns: Callable[[str, str], dict[str, Any]]

    def __str__(self) -> str:
        return self.model.kind

    @property
    def rows(self) -> Any:
        return self.model.objects.all()

    def born(self, script: Any = "effect", argument: object = "", **columns: Any) -> dict[str, Any]:
        """What `enqueue` takes for a job that does this."""
        return {"id": uuid7(), **self.columns(script, str(argument)), **columns}

    def enqueue(self, *script: Any, **columns: Any) -> Any:
        return self.model.objects.enqueue(**self.born(*script, **columns))

    def enqueue_many(self, number: int, *script: Any, **columns: Any) -> list[Any]:
        return self.model.objects.enqueue_many(self.born(*script, **columns) for _ in range(number))

    def count(self, status: str) -> int:
        return int(self.rows.filter(status=status).count())

    def seats(self, number: int) -> tuple[str, ...]:
        """Options of `runworker` for this kind alone on so many seats."""
        return "--kinds", str(self), "--seats", f"{self}={number}"


PROBE = Scripted(Probe, lambda script, argument: {"script": script, "argument": argument})
TASK = Scripted(
    TaskJob,
    lambda script, argument: {
        "task": "tests.kinds.playing.play",
        "payload": {"args": [script, argument]},
    },
)

EVERY_KIND = [PROBE, TASK]

for_each_kind = pytest.mark.parametrize("kind", EVERY_KIND, ids=str)
