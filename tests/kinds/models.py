"""A kind whose handler does what a test tells it to."""

import uuid
from collections.abc import Mapping
from typing import Any

from django.db import OperationalError, models

from jobs.engine.execution import Run
from jobs.engine.lifecycle import Job
from jobs.engine.retry import Permanent
from jobs.engine.row import Status
from tests.kinds import scripts


class Effect(models.Model):
    """What a job did to the world: one row for each time that it was done."""

    job = models.UUIDField(db_index=True)
    attempt = models.PositiveSmallIntegerField()
    process = models.PositiveIntegerField(default=0)


class Probe(Job):
    kind = "probe"
    progress_fields = {"lines": None}

    script = models.CharField(max_length=40, default="effect")
    argument = models.CharField(max_length=200, blank=True, default="")
    lines = models.IntegerField(null=True, blank=True)

    class Meta(Job.Meta):
        pass

    def perform(self, run: Run) -> Any:
        return scripts.play(self.script, run, self.argument)


class Ledger(Job):
    """A kind whose effects and completion are one transaction."""

    kind = "ledger"
    atomic = True
    defaults = {"max_running_seconds": 5}

    argument = models.CharField(max_length=200, blank=True, default="")

    class Meta(Job.Meta):
        pass

    def perform(self, run: Run) -> None:
        run.report(50, step="almost done")
        run.log("the last words")
        Effect.objects.create(job=self.pk, attempt=run.attempt)
        if self.argument == "fail":
            raise ValueError("after the effect")
        if self.argument == "lose":
            # As when the row was rescued and claimed by somebody else meanwhile.
            Ledger.objects.filter(pk=self.pk).update(claim=uuid.uuid4())


class Chain(Job):
    """A kind with follow-up work: it enqueues as many probes as `links` says."""

    kind = "chain"

    links = models.PositiveSmallIntegerField(default=1)
    done = models.CharField(max_length=20, blank=True, default="")

    class Meta(Job.Meta):
        pass

    def perform(self, run: Run) -> int:
        return self.links

    def on_completed(self, result: int) -> dict[str, Any]:
        if result < 0:
            raise ValueError("follow-up work failed")
        Probe.objects.enqueue_many({"script": "effect"} for _ in range(result))
        return {"done": "chained"}

    def on_failed(self, entry: Mapping[str, Any]) -> None:
        """What `done` says from the beginning."""
        if self.done:
            Probe.objects.enqueue(script="effect", argument=f"{self.done}: {entry['message']}")
        if self.done == "mourn badly":
            raise ValueError("mourning failed")
        if self.done == "mourn in rain":
            raise OperationalError("the database is away")


class Letter(Job):
    """A kind whose text does not outlive its end; it has no other follow-up work."""

    kind = "letter"

    text = models.TextField()
    ended_as = models.CharField(max_length=9, blank=True, default="")

    class Meta(Job.Meta):
        pass

    def perform(self, run: Run) -> None:
        if self.text == "bad":
            raise Permanent("a bad letter")

    def at_end(self, status: Status) -> dict[str, Any]:
        return {"text": "", "ended_as": status.value}
