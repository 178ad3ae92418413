"""Keeps the claims of running jobs alive, and brings them the wish that they end."""

import logging
import queue
import threading
import time
from collections.abc import Callable

from jobs.engine.conf import Config
from jobs.engine.execution import Run, give_connections_back
from jobs.engine.lifecycle import Job
from jobs.engine.retry import Cancelled, Lost, TimedOut
from jobs.engine.running import Running, claims_of
from jobs.engine.wakeup import using_own_connection
from jobs.engine.weather import SICK, Weather

logger = logging.getLogger(__name__)

SECONDS_TO_OBEY = 5.0
SECONDS_BETWEEN_LOOKS = 0.1
IDLE = 60.0


class Beat(threading.Thread):
    """Renews leases, sees cancels within a second, ends runs that are past a limit."""

    def __init__(
        self, running: Running, *, config: Config, using: str, abandon: Callable[[Run], None]
    ) -> None:
        super().__init__(name="jobs-beat", daemon=True)
        self._running = running
        self._config = config
        self._using = using
        self._abandon = abandon
        self._bell: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._weather = Weather("heartbeat")
        self._next_renewal = 0.0
        self._next_look = 0.0
        self._last_look = 0.0
        self._had_runs = False
        self._closing = False
        self._renewing = threading.Lock()

    def ring(self) -> None:
        """Somebody may have asked for a cancel, or a run was added."""
        self._bell.put(True)

    def close(self) -> None:
        self._closing = True
        self.ring()

    def run(self) -> None:
        with using_own_connection(self._using):
            self._loop()

    def _loop(self) -> None:
        wait = IDLE
        while not self._closing:
            if self._wait(wait):
                # Hints may come in a flood; a cancel may wait for a tenth of a second.
                self._next_look = min(self._next_look, self._last_look + SECONDS_BETWEEN_LOOKS)
            try:
                self._tend()
                self._weather.good()
                wait = self._until_next()
            except SICK as error:
                wait = min(self._weather.bad(error), self._until_next())
            except Exception:
                # Without this thread every lease of the process would run out.
                logger.exception("heartbeat: leases could not be renewed")
                wait = self._weather.LONGEST
            self._enforce(time.monotonic())

    def _wait(self, seconds: float) -> bool:
        try:
            self._bell.get(timeout=max(0.01, seconds))
        except queue.Empty:
            return False
        while not self._bell.empty():
            self._bell.get()
        return True

    def _tend(self) -> None:
        now = time.monotonic()
        if not self._had_runs:
            # What runs now was claimed a moment ago, with a whole lease.
            self._next_renewal = now + self._config.heartbeat_seconds
        self._had_runs = len(self._running) > 0
        if now >= self._next_renewal:
            self.renew()
        if now >= self._next_look:
            self._last_look = now
            self._next_look = now + self._config.poll_seconds
            for kind, runs in self._running.by_kind().items():
                self._look_for_cancels(kind, runs)

    def _until_next(self) -> float:
        runs = self._running.all()
        if not runs:
            give_connections_back()
            return IDLE
        now = time.monotonic()
        limits = [run.time_limit for run in runs if run.time_limit > now or run.stopped is None]
        obeying = 0.5 if any(run.stopped for run in runs) else IDLE
        return min(
            self._next_renewal - now,
            self._next_look - now,
            obeying,
            min(limits, default=now + IDLE) - now,
        )

    def renew(self) -> None:
        """Renew all leases, one statement per kind; a lost one stops its run."""
        with self._renewing:
            for kind, all_runs in self._running.by_kind().items():
                # A run that was given up keeps no lease: its job is rescued so much sooner.
                runs = [run for run in all_runs if not isinstance(run.stopped, Lost)]
                if not runs:
                    continue
                # What the statement waited for is taken off the lease here, to be safe. After a
                # long wait nothing would be left of it, though the row has a new one: once more.
                if self._renew_kind(kind, runs) > self._config.heartbeat_seconds:
                    self._renew_kind(kind, runs)
            self._next_renewal = time.monotonic() + self._config.heartbeat_seconds

    def _renew_kind(self, kind: type[Job], runs: list[Run]) -> float:
        """Renew the leases of one kind; returns the seconds that it took."""
        asked = time.monotonic()
        lost = kind.objects.renew(claims_of(runs), lease_seconds=self._config.lease_seconds)
        for run in runs:
            if run.job.pk in lost:
                run.stop(Lost("Another attempt owns this job, or it is gone."))
            else:
                run.lease_ends = asked + self._config.lease_seconds
        return time.monotonic() - asked

    @staticmethod
    def _look_for_cancels(kind: type[Job], runs: list[Run]) -> None:
        asked = kind.objects.cancel_requests(claims_of(runs))
        for run in runs:
            if run.job.pk in asked:
                run.stop(Cancelled("Cancelled by a person."))

    def _enforce(self, now: float) -> None:
        """What needs no database: time limits, leases that could not be renewed, stubborn threads."""
        for run in self._running.all():
            if run.stopped is None and now >= run.time_limit:
                run.stop(
                    TimedOut(
                        f"Took longer than the limit of {run.job.max_running_seconds:g} seconds."
                    )
                )
            elif run.stopped is None and run.in_handler and now >= run.lease_ends:
                run.stop(Lost("The lease could not be renewed in time."))
            elif run.stopped is not None:
                run.kill_stragglers()
                if now >= run.time_limit:
                    # Whatever it was asked before: past its limit it is asked with emphasis.
                    run.interrupt()
                    if now - max(run.stopped_at, run.time_limit) > SECONDS_TO_OBEY:
                        self._abandon(run)
