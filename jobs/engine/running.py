"""The runs of one worker process: claimed, and their outcome not yet written."""

import threading
import uuid

from jobs.engine.execution import Run
from jobs.engine.lifecycle import Job
from jobs.engine.retry import Lost


class Running:
    """A set of runs that several threads look at."""

    def __init__(self) -> None:
        self._runs: dict[tuple[type[Job], uuid.UUID], Run] = {}
        self._changed = threading.Condition()

    def add(self, run: Run) -> None:
        key = type(run.job), run.job.pk
        with self._changed:
            older = self._runs.get(key)
            self._runs[key] = run
        if older is not None:
            # We were given our own job again, so the first claim on it has ended.
            older.stop(Lost("The job was claimed again."))

    def remove(self, run: Run) -> None:
        key = type(run.job), run.job.pk
        with self._changed:
            if self._runs.get(key) is run:
                del self._runs[key]
            self._changed.notify_all()

    def all(self) -> list[Run]:
        with self._changed:
            return list(self._runs.values())

    def by_kind(self) -> dict[type[Job], list[Run]]:
        kinds: dict[type[Job], list[Run]] = {}
        for run in self.all():
            kinds.setdefault(type(run.job), []).append(run)
        return kinds

    def __len__(self) -> int:
        return len(self._runs)

    def wait_until_empty(self, seconds: float) -> bool:
        """True as soon as nothing runs, False when `seconds` have passed before."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._runs, timeout=seconds)


def claims_of(runs: list[Run]) -> dict[uuid.UUID, uuid.UUID]:
    """{id: claim} of runs of one kind."""
    return {run.job.pk: run.job.claim for run in runs if run.job.claim is not None}
