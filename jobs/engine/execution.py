"""Runs one claimed job in the calling thread and says how it ended."""

import contextlib
import contextvars
import ctypes
import decimal
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import connections, transaction

from jobs.engine import coroutines
from jobs.engine.lifecycle import Job, LostClaim
from jobs.engine.programs import Process, Programs
from jobs.engine.progress import Progress
from jobs.engine.retry import (
    Cancelled,
    Decision,
    Failed,
    Lost,
    Released,
    Snooze,
    Stopped,
    TimedOut,
    decide,
)
from jobs.engine.text import clean_traceback, words_of

logger = logging.getLogger(__name__)

SECONDS_TO_DIE = 2.0

AwaitOn = Callable[[coroutines.Call, coroutines.WhenStopped, coroutines.Nothing], Any]


class Run:
    """One attempt at a job, as its handler sees it."""

    def __init__(
        self,
        job: Job,
        *,
        lease_ends: float,
        on_report: Callable[[], None] = lambda: None,
        await_on: AwaitOn = coroutines.here,
    ):
        self.job = job
        self.progress = Progress(job)
        self.lease_ends = lease_ends
        """Until when, on this process's monotonic clock, the claim is safely ours."""
        self.time_limit = float("inf")
        self._began = 0.0
        self._on_report = on_report
        self._lock = threading.RLock()
        self._stopped: Stopped | None = None
        self._stopped_at = 0.0
        self._thread: int | None = None
        self._interrupted = False
        self._programs = Programs()
        self._await_on = await_on
        self._on_stop: Callable[[], None] = lambda: None

    # For handlers.

    @property
    def attempt(self) -> int:
        """1 for the first start of this job."""
        return self.job.attempts

    def report(self, percent: float | None = None, **details: Any) -> None:
        """Say how far it is: `percent`, or `done` of `total`, and `step` in words.

        Never touches the database, so it is cheap to call often. Raises like `check`.
        """
        self.check()
        self.progress.put(percent, **details)
        self._on_report()

    def check(self) -> None:
        """Raise Cancelled, TimedOut, Released or Lost when this run is to end."""
        if self._stopped is not None:
            raise self._stopped

    def log(self, line: str) -> None:
        """Keep a line on the job, where pages show it live; long ones and too many are cut."""
        self.progress.add_line(line)
        self._on_report()

    def subprocess(self, argv: Sequence[str], **options: Any) -> Process:
        """Start a program in a process group of its own, which dies with this run.

        Options are those of subprocess.Popen. Raises like `check`, and OSError.
        """
        with self._lock:
            self.check()
            return self._programs.start(argv, **options)

    def wait_for(self, call: coroutines.Call) -> Any:
        """Await a coroutine on the event loop of the worker; it is cancelled when the run is to end."""
        return self._await_on(call, self.when_stopped, give_connections_back)

    def when_stopped(self, callback: Callable[[], None]) -> None:
        """Call this, from any thread, when the run is asked to end, and again with emphasis."""
        with self._lock:
            self._on_stop = callback
            if self._stopped is not None:
                callback()

    # For the worker.

    @property
    def stopped(self) -> Stopped | None:
        return self._stopped

    @property
    def stopped_at(self) -> float:
        """When it was asked to stop, on the monotonic clock."""
        return self._stopped_at

    @property
    def in_handler(self) -> bool:
        return self._thread is not None

    def stop(self, reason: Stopped) -> None:
        """Ask the run to end: programs get SIGTERM, `check` raises. The first reason stands."""
        with self._lock:
            if self._stopped is None:
                self._stopped = reason
                self._stopped_at = time.monotonic()
                self._programs.signal(signal.SIGTERM)
                self._on_stop()
            if isinstance(reason, TimedOut):
                self.interrupt()

    def kill_stragglers(self, *, after: float = SECONDS_TO_DIE) -> None:
        """SIGKILL the programs that outlived SIGTERM by so many seconds."""
        with self._lock:
            if self._stopped and time.monotonic() - self._stopped_at > after:
                self._programs.signal(signal.SIGKILL)

    @contextlib.contextmanager
    def handling(self) -> Iterator[None]:
        """The time in which the calling thread belongs to the handler."""
        with self._lock:
            self._thread = threading.get_ident()
            self._began = time.monotonic()
            self.time_limit = self._began + self.job.max_running_seconds
        try:
            yield
        finally:
            self.leave()

    def leave(self) -> None:
        """The handler is out: nothing may be raised in its thread, none of its programs lives on."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)
            ended = self._programs.end()
        for program in ended:
            program.wait()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began if self._began else 0.0

    def interrupt(self) -> None:
        """Raise the reason of the stop in the handler's thread, once."""
        with self._lock:
            if self._thread is None or self._interrupted or self._stopped is None:
                return
            self._interrupted = True
            self._on_stop()
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread), ctypes.py_object(type(self._stopped))
            )


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: the verb to write, and what goes with it."""

    run: Run
    decision: Decision
    result: Any = None
    entry: dict[str, Any] = field(default_factory=dict)


def execute(run: Run) -> Outcome:
    """Perform the job; every way in which a handler can end comes back as an Outcome."""
    before = _open_transactions()
    try:
        run.check()
        if run.job.runs_atomically():
            return _execute_atomically(run)
        with run.handling():
            result = _perform(run)
        if _open_transactions() != before:
            raise Failed("It left a transaction open, which is rolled back.")
        return Outcome(run, Decision("complete"), result)
    except BaseException as error:
        run.leave()
        return outcome_of(run, error)
    finally:
        give_connections_back()


def _perform(run: Run) -> Any:
    """In a context of its own: the language, time zone or precision of one job is not the next one's."""
    return contextvars.copy_context().run(_perform_apart, run)


def _perform_apart(run: Run) -> Any:
    # The one thing in a context that is changed in place.
    decimal.setcontext(decimal.getcontext().copy())
    return run.job.perform(run)


def _execute_atomically(run: Run) -> Outcome:
    """Perform and complete in one transaction: a lost claim takes the effects with it."""
    lost = False
    try:
        with transaction.atomic(using=run.job._state.db):
            with run.handling():
                result = _perform(run)
            try:
                # Its last words, which nobody could write once it is completed.
                with run.progress.writing():
                    run.job.complete(result)
            except LostClaim:
                lost = True
                raise
    except LostClaim:
        # One that the handler met itself, about another job, is a failure like others.
        if not lost:
            raise
    return Outcome(run, Decision("drop"))


def _open_transactions() -> dict[str, int]:
    """How deep in transactions this thread is, by database."""
    opened = connections.all(initialized_only=True)
    return {one.alias: depth for one in opened if (depth := len(one.atomic_blocks))}


def close_everything() -> None:
    """Close this thread's connections, also those in which a handler left a transaction open."""
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            connection.close()
            # This wrapper stays marked as being inside; the next use makes a new one.
            del connections[connection.alias]


def give_connections_back() -> None:
    """Close this thread's connections, which returns them to the pool where there is one."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()
            # Under DEBUG each connection remembers its queries, and workers live long.
            connection.queries_log.clear()


def outcome_of(run: Run, error: BaseException) -> Outcome:
    """What follows from an error; a run that was asked to stop ended for that reason."""
    try:
        return _outcome_of(run, error)
    except BaseException:
        # A back-off or a message of the kind's own that fails must not take the seat along.
        logger.exception("%s: it cannot be told how it ended", run.job)
        message = f"{type(error).__name__}, of which no more can be told."
        entry = run.job.log_entry("failed", ended_at=None, message=message)
        return Outcome(run, Decision("fail"), entry=entry)


def _outcome_of(run: Run, error: BaseException) -> Outcome:
    cause = run.stopped or error
    if run.stopped is None and isinstance(error, (Lost, Released)):
        cause = Failed(f"The handler raised {type(error).__name__}, which is the worker's to say.")
    decision = decide(
        cause,
        attempt=run.job.attempts,
        max_attempts=run.job.max_attempts,
        wait=run.job.backoff,
    )
    return Outcome(run, decision, entry=_entry(run, cause, error))


def _entry(run: Run, cause: BaseException, error: BaseException) -> dict[str, Any]:
    started = run.job.started_at
    told = isinstance(cause, (Failed, Snooze, Stopped))
    message = words_of(cause) if told else f"{type(cause).__name__}: {words_of(cause)}"
    return run.job.log_entry(
        _OUTCOMES.get(type(cause), "failed"),
        ended_at=started + timedelta(seconds=run.seconds) if started else None,
        error_class=f"{type(cause).__module__}.{type(cause).__qualname__}",
        message=message,
        # How the handler unwound when it was stopped or wished to wait says nothing of its own.
        traceback="" if isinstance(cause, (Stopped, Snooze)) else clean_traceback(error),
    )


_OUTCOMES: dict[type[BaseException], str] = {
    Cancelled: "cancelled",
    Released: "released",
    Snooze: "snoozed",
    TimedOut: "timed out",
}
