"""The workers of one process: one for each database in which its kinds live."""

import threading
from collections.abc import Sequence
from typing import Any

from jobs.engine import maintenance
from jobs.engine.lifecycle import Job
from jobs.engine.worker import Worker


class Crew:
    """Stops together; for a single database it is that one worker and no more."""

    def __init__(self, kinds: Sequence[type[Job]], *, burst: bool = False, **options: Any) -> None:
        self._burst = burst
        self._options = options
        self._by_database: dict[str, list[type[Job]]] = {}
        for kind in kinds:
            self._by_database.setdefault(kind.objects.db, []).append(kind)
        self._workers: list[Worker] = []
        self._stops = 0

    def stop(self) -> None:
        """Like Worker.stop. Safe in a signal handler."""
        self._stops += 1
        for worker in self._workers:
            worker.stop()

    def run(self) -> int:
        """Work until stopped, or in a burst until nothing is due anywhere; the exit code."""
        code = self._run_all()
        while (
            self._burst and not self._stops and len(self._by_database) > 1 and self._something_due()
        ):
            code = max(code, self._run_all())
        return code

    def _run_all(self) -> int:
        self._workers = [
            Worker(kinds, burst=self._burst, **self._options)
            for kinds in self._by_database.values()
        ]
        for _ in range(self._stops):
            # A signal came between two rounds of a burst.
            for worker in self._workers:
                worker.stop()
        codes: list[int] = []
        threads = [
            threading.Thread(target=self._run, args=(worker, codes), name="jobs-worker")
            for worker in self._workers[1:]
        ]
        for thread in threads:
            thread.start()
        self._run(self._workers[0], codes)
        for thread in threads:
            thread.join()
        return max(codes)

    def _run(self, worker: Worker, codes: list[int]) -> None:
        code = 1
        try:
            code = worker.run()
        finally:
            codes.append(code)
            if not self._burst or code:
                # One that retires takes the others with it: the process is started again.
                for other in self._workers:
                    if other is not worker:
                        other.stop()

    def _something_due(self) -> bool:
        return any(
            maintenance.look(kinds, using=using, queues=self._options.get("queues", ())).due
            for using, kinds in self._by_database.items()
        )
