"""How far a run is: reported into memory, written by the finisher; monotone and fenced."""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

from django.core.exceptions import ValidationError
from django.db import InterfaceError, OperationalError
from django.db.models import F, Value
from django.db.models.functions import Concat

from jobs.engine.lifecycle import Job
from jobs.engine.text import clean

STEP_CHARACTERS = 200
LOG_CHARACTERS = 64 * 1024
LINE_CHARACTERS = 1_000
News = tuple[dict[str, Any], list[str]]
"""(columns, lines) that nobody has written yet."""
NOTHING: News = ({}, [])
FULL = "… the log is full."
SECONDS_BETWEEN_WRITES = 0.2
SECONDS_TO_WRITE = 0.2


class Progress:
    """The newest report of one run; older unwritten ones are overwritten."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._under_way = NOTHING
        self._columns: dict[str, Any] = {}
        self._lines: list[str] = []
        self._room = max(0, LOG_CHARACTERS - len(job.log))
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
        for name, value in {"progress_done": done, "progress_total": total, **more}.items():
            self._check(name, value)
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

    def _check(self, name: str, value: Any) -> None:
        """Raise ValueError here, in the handler, for what its column does not take."""
        try:
            self._job._meta.get_field(name).clean(value, None)  # type: ignore[union-attr]
        except ValidationError as error:
            raise ValueError(
                f"{name} cannot be {value!r:.80}: {' '.join(error.messages)}"
            ) from None

    def add_line(self, line: str) -> None:
        """Note a line for the job's log; what is beyond its size is left out, and that is said.

        Raises TypeError for what is no text.
        """
        if not isinstance(line, str):
            raise TypeError(f"line must be text, not {line!r:.80}.")
        text = clean(line, limit=LINE_CHARACTERS)
        with self._lock:
            if not self._room:
                return
            if len(text) >= self._room:
                text, self._room = FULL, 0
            else:
                self._room -= len(text) + 1
            self._lines.append(text)

    def wait_needed(self, now: float) -> float | None:
        """Seconds until this report should be written; None when there is nothing to write."""
        with self._lock:
            if not self._columns and not self._lines:
                return None
            return 0 if self._urgent else max(0, self._written_at + SECONDS_BETWEEN_WRITES - now)

    def write(self) -> None:
        """Write what was reported since the last time; raises LostClaim."""
        with self._writing:
            self._under_way = news = self._take()
            try:
                self._write(news)
            except (OperationalError, InterfaceError):
                # What a sick database refused is written later, unless it is outdated by then.
                self._give_back(news)
                raise
            finally:
                self._under_way = NOTHING

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Write in the transaction of the body, which may fail: then it is written later.

        What another thread writes at this moment may wait for this very transaction, after which
        the job is over and nothing can be written. After a moment that is taken for so, and
        written here too.
        """
        alone = self._writing.acquire(timeout=SECONDS_TO_WRITE)
        mine, theirs = self._take(), NOTHING if alone else self._under_way
        try:
            self._write((theirs[0] | mine[0], theirs[1] + mine[1]))
            yield
        except BaseException:
            self._give_back(mine)
            raise
        finally:
            if alone:
                self._writing.release()

    def _take(self) -> News:
        with self._lock:
            news = self._columns, self._lines
            self._columns, self._lines, self._urgent = {}, [], False
            self._written_at = time.monotonic()
            return news

    def _give_back(self, news: News) -> None:
        columns, lines = news
        with self._lock:
            self._columns = columns | self._columns
            self._lines = lines + self._lines

    def _write(self, news: News) -> None:
        columns, lines = news
        if lines:
            columns = {**columns, "log": Concat(F("log"), Value("\n".join([*lines, ""])))}
        if columns:
            self._job.report(**columns)
