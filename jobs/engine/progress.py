"""How far a run is: reported into memory, written by the finisher; monotone and fenced."""

import threading
import time
from typing import Any

from jobs.engine.lifecycle import Job, LostClaim
from jobs.engine.text import clean

STEP_CHARACTERS = 200
SECONDS_BETWEEN_WRITES = 0.2


class Progress:
    """The newest report of one run; older unwritten ones are overwritten."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._columns: dict[str, Any] = {}
        self._percent = 0
        self._step = ""
        self._urgent = False
        self._written_at = 0.0

    def put(
        self,
        percent: float | None = None,
        *,
        step: str | None = None,
        done: int | None = None,
        total: int | None = None,
        **more: Any,
    ) -> None:
        """Note a report; raises TypeError for a column that the kind does not have.

        The percentage is `done` of `total` where none is given; it never falls and stays below
        100, which only the completed row shows.
        """
        unknown = set(more) - set(self._job.progress_fields)
        if unknown:
            raise TypeError(f"{self._job.kind} has no progress field {', '.join(sorted(unknown))}")
        if percent is None and done is not None and total:
            percent = 100 * done / total
        with self._lock:
            if percent is not None:
                self._percent = max(self._percent, min(99, int(percent)))
                self._columns["progress_pct"] = self._percent
            if step is not None and step != self._step:
                self._step = step
                self._columns["progress_step"] = clean(step, limit=STEP_CHARACTERS)
                self._urgent = True
            self._columns.update(progress_done=done, progress_total=total, **more)

    def wait_needed(self, now: float) -> float | None:
        """Seconds until this report should be written; None when there is nothing to write."""
        with self._lock:
            if not self._columns:
                return None
            return 0 if self._urgent else max(0, self._written_at + SECONDS_BETWEEN_WRITES - now)

    def write(self) -> None:
        """Write what was reported since the last time; raises LostClaim."""
        with self._lock:
            columns, self._columns, self._urgent = self._columns, {}, False
            self._written_at = time.monotonic()
        if not columns:
            return
        try:
            self._job.report(**columns)
        except LostClaim:
            raise
        except BaseException:
            with self._lock:
                # What a sick database refused is written later, unless it is outdated by then.
                self._columns = columns | self._columns
            raise
