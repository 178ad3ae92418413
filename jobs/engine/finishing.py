"""Writes reports and outcomes back, many in one commit when many are there."""

import logging
import queue
import threading
import time
from collections.abc import Callable

from django.db import InterfaceError, OperationalError, transaction

from jobs.engine.execution import Outcome, Run, give_connections_back, outcome_of
from jobs.engine.lifecycle import Job, LostClaim
from jobs.engine.retry import Lost
from jobs.engine.running import Running
from jobs.engine.wakeup import using_own_connection
from jobs.engine.weather import SICK, Weather

logger = logging.getLogger(__name__)

# What has run and is not written yet would run again if the worker died.
MOST_UNWRITTEN = 100


class Finisher(threading.Thread):
    """Takes outcomes from the seats; while one commit is under way, the next batch gathers."""

    def __init__(
        self, running: Running, *, using: str, caught_up: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(name="jobs-finisher", daemon=True)
        self._using = using
        self._running = running
        self._caught_up = caught_up
        self._awaited = False
        self._bell: queue.SimpleQueue[Outcome | None] = queue.SimpleQueue()
        self._kept: list[Outcome] = []
        self._poked = threading.Event()
        self._weather = Weather("finishing")
        self._closing = False

    def put(self, outcome: Outcome) -> None:
        self._bell.put(outcome)

    def is_behind(self) -> bool:
        """So many outcomes wait that there should be no more; `caught_up` is called when it is half.

        Handlers that are shorter than a commit would otherwise run far ahead of what is written.
        """
        # Set before the look, so that who writes the last of them meanwhile tells it.
        self._awaited = True
        self._awaited = self._unwritten() >= MOST_UNWRITTEN
        return self._awaited

    def _unwritten(self) -> int:
        return len(self._kept) + self._bell.qsize()

    def _written(self, outcome: Outcome) -> None:
        self._kept.remove(outcome)
        self._running.remove(outcome.run)
        if self._awaited and self._unwritten() * 2 <= MOST_UNWRITTEN:
            self._awaited = False
            self._caught_up()

    def poke(self) -> None:
        """A report waits to be written."""
        # One ring is enough: a handler may report far more often than anything is written.
        if not self._poked.is_set():
            self._poked.set()
            self._bell.put(None)

    def close(self) -> None:
        """Write what is there, then end."""
        self._closing = True
        self._bell.put(None)

    def run(self) -> None:
        try:
            with using_own_connection(self._using):
                self._loop()
        finally:
            give_connections_back()

    def _loop(self) -> None:
        pause: float | None = None
        while not self._closing or self._kept or not self._bell.empty():
            self._gather(pause)
            try:
                self._write_outcomes()
                pause = self._write_reports()
                self._weather.good()
            except SICK as error:
                pause = self._weather.bad(error)
                if self._closing:
                    # What a leaving worker cannot write, the lease gives back.
                    return
            except Exception:
                # Without this thread no job of the process would ever end.
                logger.exception("finishing: outcomes could not be written")
                pause = self._weather.LONGEST

    def _gather(self, pause: float | None) -> None:
        try:
            first = self._bell.get(timeout=pause)
        except queue.Empty:
            first = None
        self._poked.clear()
        if first is not None:
            self._kept.append(first)
        while not self._bell.empty():
            more = self._bell.get()
            if more is not None:
                self._kept.append(more)

    def _write_reports(self) -> float | None:
        """Write the reports that are due; returns after how many seconds the next one is."""
        waits = []
        for run in self._running.all():
            wait = run.progress.wait_needed(time.monotonic())
            if wait == 0:
                self._report(run)
                wait = run.progress.wait_needed(time.monotonic())
            if wait is not None:
                waits.append(wait)
        return min(waits, default=None)

    @staticmethod
    def _report(run: Run) -> None:
        try:
            run.progress.write()
        except LostClaim:
            run.stop(Lost("Another attempt owns this job, or it is gone."))
        except (OperationalError, InterfaceError):
            raise
        except Exception:
            # What cannot be written is not written; the outcome still is.
            logger.exception("%s: a report cannot be written", run.job)

    def _write_outcomes(self) -> None:
        """Write all that was gathered; on a sick database the rest stays gathered."""
        for outcome in self._kept:
            if outcome.decision.verb != "drop":
                # The last words of a run come before its end, after which it has none.
                self._report(outcome.run)
        self._complete_together()
        while self._kept:
            write(self._kept[0])
            self._written(self._kept[0])

    def _complete_together(self) -> None:
        """Complete the plain ones of each kind in one commit; leave all where any claim is lost."""
        plain: dict[type[Job], list[Outcome]] = {}
        for outcome in self._kept:
            kind = type(outcome.run.job)
            if outcome.decision.verb == "complete" and not outcome.run.job.has_follow_up(
                outcome.result
            ):
                plain.setdefault(kind, []).append(outcome)
        for kind, outcomes in plain.items():
            try:
                with transaction.atomic(using=outcomes[0].run.job._state.db):
                    kind.objects.complete_all([outcome.run.job for outcome in outcomes])
            except LostClaim:
                continue
            for outcome in outcomes:
                self._written(outcome)


def write(outcome: Outcome) -> None:
    """Write one outcome; a lost claim drops it, a failing follow-up makes it a failure."""
    job = outcome.run.job
    try:
        _apply(outcome)
    except LostClaim:
        logger.warning(
            "%s: attempt %d was over before it ended; its outcome is dropped", job, job.attempts
        )
        _discard(outcome)
    except (OperationalError, InterfaceError):
        raise
    except Exception as error:
        if outcome.decision.verb != "complete":
            # Not the weather: what cannot be written today cannot be written tomorrow. The lease
            # ends, the attempt is spent, and the job ends by itself.
            logger.exception("%s: attempt %d: its outcome cannot be written", job, job.attempts)
            return
        _discard(outcome)
        write(outcome_of(outcome.run, error))


def _apply(outcome: Outcome) -> None:
    job, delay, entry = outcome.run.job, outcome.decision.delay, outcome.entry
    match outcome.decision.verb:
        case "complete":
            job.complete(outcome.result)
        case "retry_later":
            job.retry_later(delay, entry)
        case "fail":
            job.fail(entry)
        case "snooze":
            job.snooze(delay, entry)
        case "cancelled":
            job.cancelled(entry)
        case "release":
            job.release(entry)
        case "drop":
            return
    if outcome.decision.verb in ("retry_later", "fail"):
        logger.warning(
            "%s: attempt %d %s: %s", job, job.attempts, entry["outcome"], entry["message"]
        )


def _discard(outcome: Outcome) -> None:
    if outcome.decision.verb != "complete":
        return
    try:
        outcome.run.job.discard(outcome.result)
    except Exception:
        logger.exception("%s: its result could not be cleaned up", outcome.run.job)
