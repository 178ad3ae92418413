"""The worker: seats, dispatch and drain. No SQL and no status here."""

import logging
import queue
import random
import time
from collections.abc import Mapping, Sequence
from functools import partial

from jobs.engine import ageing, identity, maintenance
from jobs.engine.beat import Beat
from jobs.engine.conf import Config, config
from jobs.engine.coroutines import on_the_loop
from jobs.engine.execution import Run, outcome_of
from jobs.engine.finishing import Finisher
from jobs.engine.isolation import Body, Isolation
from jobs.engine.lifecycle import Job, LostClaim
from jobs.engine.maintenance import Sight, Sweeper
from jobs.engine.retry import Released
from jobs.engine.running import Running
from jobs.engine.schedules import Schedule
from jobs.engine.seats import Seats
from jobs.engine.wakeup import Waker, channel_of, using_own_connection
from jobs.engine.weather import SICK, Weather

logger = logging.getLogger(__name__)

EXIT_RETIRED = 75  # EX_TEMPFAIL of sysexits.h: start me again
SECONDS_TO_UNWIND = 1.2
SECONDS_BETWEEN_AGEINGS = 30.0

Kind = type[Job]


class Worker:
    """Claims jobs of some kinds and runs them on seats until it is stopped."""

    def __init__(
        self,
        kinds: Sequence[Kind],
        *,
        seats: Mapping[str, int] | None = None,
        queues: Sequence[str] = (),
        grace_seconds: float | None = None,
        burst: bool = False,
        suspects_body: Body | None = None,
        suspects_only: bool = False,
        settings: Config | None = None,
    ) -> None:
        self._settings = settings or config()
        self._grace = self._settings.grace_seconds if grace_seconds is None else grace_seconds
        self._burst = burst
        self._suspects_only = suspects_only
        self._isolation = (
            Isolation(suspects_body, queues=queues, ended=self._child_ended)
            if suspects_body
            else None
        )
        self._queues = queues
        self._name = identity.this_worker()
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._stops = 0
        self._retired = False
        self._backlog: set[Kind] = set()
        self._turn = 0
        self._next_ageing = 0.0
        self._sweeper = Sweeper()
        self._weather = Weather("worker")
        self.running = Running()
        using = kinds[0].objects.db
        self.finisher = Finisher(self.running, using=using, caught_up=self.ring)
        self._using = using
        self.beat = Beat(self.running, config=self._settings, using=using, abandon=self._abandon)
        self.waker = Waker([channel_of(kind.kind) for kind in kinds], self._hint, using=using)
        self._abandoned = 0
        self._seats = {kind: self._make_seats(kind, seats or {}) for kind in kinds}

    def _make_seats(self, kind: Kind, given: Mapping[str, int]) -> Seats:
        number = given.get(kind.kind, self._settings.seats_of(kind.kind))
        return Seats(
            kind.kind, number, kept=kind.urgent_seats, put=self.finisher.put, freed=self.ring
        )

    def ring(self) -> None:
        """Wake the dispatcher. Safe in a signal handler: SimpleQueue.put may interrupt itself."""
        self._bell.put(None)

    def stop(self) -> None:
        """Claim nothing more and drain; the second time, release what still runs at once."""
        self._stops += 1
        self.ring()

    def run(self) -> int:
        """Work until stopped (or, in a burst, until nothing is due); returns the exit code."""
        for thread in (self.finisher, self.beat, self.waker):
            thread.start()
        with using_own_connection(self._using):
            try:
                self._rescue_first()
                while not self._stops:
                    self._round()
            finally:
                self._drain()
        return EXIT_RETIRED if self._retired else 0

    def _hint(self) -> None:
        self.ring()
        if len(self.running):
            self.beat.ring()

    def _rescue_first(self) -> None:
        """Before the first claim, give back what dead workers left."""
        while not self._stops:
            try:
                for kind in self._seats:
                    maintenance.rescue_dead(kind, worker=self._name)
                while not self._stops and self._sweep(self._look()):
                    self._wait(maintenance.SECOND_LOOK + 0.01)
                return
            except SICK as error:
                self._wait(self._weather.bad(error))

    def _round(self) -> None:
        """Look, do what there is to do, wait for news."""
        idle = not len(self.running) and not self._isolation
        try:
            sight = self._look()
            self._sweep(sight)
            self._keep_up(sight)
            claimed = self._claim_in_turns(sight)
            self._weather.good()
        except (*SICK, LostClaim) as error:
            self._wait(self._weather.bad(error))
            return
        except Exception:
            # One row that nobody foresaw must not keep all others from running.
            logger.exception("worker: a round failed")
            self._wait(self._weather.LONGEST)
            return
        if self._burst and idle and not claimed and not sight.ripe:
            self._stops += 1
            return
        if not (claimed and self._backlog):
            self._wait(self._pause(sight))

    def _keep_up(self, sight: Sight) -> None:
        """Rows and schedules whose time has come, and now and then the order of old rows."""
        for kind in sight.ripe:
            kind.objects.mature()
        if sight.ticks and Schedule.objects.using(self._using).tick():
            self.ring()
        if sight.due and time.monotonic() >= self._next_ageing:
            self._next_ageing = time.monotonic() + SECONDS_BETWEEN_AGEINGS
            for kind in sight.due:
                ageing.raise_ranks(kind)

    def _look(self) -> Sight:
        return maintenance.look(
            list(self._seats), using=self._using, worker=self._name, queues=self._queues
        )

    def _sweep(self, sight: Sight) -> bool:
        """Rescue what has been expired for a while; True while anything is expired."""
        if sight.expired and len(self.running):
            # Our own late heartbeat must not make us rob ourselves.
            self.beat.renew()
        rescued: list[Job] = []
        for kind in self._seats:
            rescued += self._sweeper.sweep(kind, expired=kind in sight.expired)
            if kind in sight.neighbours:
                rescued += maintenance.rescue_dead(kind, worker=self._name)
        if rescued:
            self.ring()
        return bool(sight.expired)

    def _pause(self, sight: Sight) -> float:
        poll = self._settings.poll_seconds * random.uniform(1.0, 1.1)  # noqa: S311
        if sight.expired:
            return min(poll, maintenance.SECOND_LOOK + 0.01)
        return poll if sight.next_in is None else min(poll, sight.next_in)

    def _wait(self, seconds: float) -> None:
        try:
            self._bell.get(timeout=max(0.001, seconds))
        except queue.Empty:
            return
        while not self._bell.empty():
            self._bell.get()

    def _claim_in_turns(self, sight: Sight) -> int:
        """Claim what is due, and what is suspect: neither waits for the other's backlog."""
        due = (sight.due | sight.ripe) - sight.paused
        claims = [
            partial(self._claim, due, urgent=sight.urgent),
            partial(self._claim_suspects, sight.suspects - sight.paused, urgent=sight.urgent),
        ]
        self._turn += 1
        return sum(claim() for claim in (claims if self._turn % 2 else reversed(claims)))

    def _claim(self, due: set[Kind], *, urgent: set[Kind]) -> int:
        """Claim for the free seats of each due kind, a different kind first each time."""
        kinds = list(self._seats)
        first = self._turn % len(kinds)
        claimed = 0
        self._backlog.clear()
        if self.finisher.is_behind():
            return 0
        for kind in kinds[first:] + kinds[:first]:
            if kind in due and not self._stops and not self._suspects_only:
                claimed += self._claim_kind(kind)
                if kind in urgent:
                    claimed += self._claim_kind(kind, urgent=True)
        return claimed

    def _claim_suspects(self, kinds: set[Kind], *, urgent: set[Kind]) -> int:
        """Jobs in whose last attempt the worker died: each in a process of its own, or one here."""
        if self._isolation is not None:
            isolation = self._isolation
            return sum(self._isolate(isolation, kind, urgent=kind in urgent) for kind in kinds)
        if any(run.job.suspect for run in self.running.all()):
            return 0
        for kind in self._seats:
            if kind in kinds and not self._stops and self._claim_kind(kind, suspects=True):
                return 1
        return 0

    def _isolate(self, isolation: Isolation, kind: Kind, *, urgent: bool) -> int:
        seats = self._seats[kind]
        permits = seats.take(isolation.wanted(kind), urgent=urgent)
        for _ in range(permits):
            isolation.start(kind)
        return permits

    def _child_ended(self, kind: Kind) -> None:
        self._seats[kind].give_back(1)
        self.ring()

    def _claim_kind(self, kind: Kind, *, urgent: bool = False, suspects: bool = False) -> int:
        """Claim for the free seats of a kind, from one of its queues after the other."""
        seats = self._seats[kind]
        free = seats.take(1 if suspects else seats.number, urgent=urgent)
        started = 0
        try:
            for name in self._queues_in_turn(kind):
                if started < free:
                    limit = free - started
                    started += self._claim_from(kind, name, limit, suspects=suspects, urgent=urgent)
        finally:
            seats.give_back(free - started)
        if free and started == free and not suspects:
            self._backlog.add(kind)
        return started

    def _queues_in_turn(self, kind: Kind) -> Sequence[str | None]:
        """The queues to claim from, another one first each time; [None] for all of them at once."""
        if not self._queues or not kind.queued:
            return [None]
        first = self._turn % len(self._queues)
        return [*self._queues[first:], *self._queues[:first]]

    def _claim_from(self, kind: Kind, name: str | None, limit: int, **which: bool) -> int:
        asked = time.monotonic()
        jobs = kind.objects.claim(
            limit,
            worker=self._name,
            lease_seconds=self._settings.lease_seconds,
            queue=name,
            **which,
        )
        for job in jobs:
            run = Run(
                job,
                lease_ends=asked + self._settings.lease_seconds,
                on_report=self.finisher.poke,
                await_on=on_the_loop,
            )
            self.running.add(run)
            self._seats[kind].start(run)
        if jobs:
            self.beat.ring()
        return len(jobs)

    def _abandon(self, run: Run) -> None:
        """A thread ignores its time limit: end its job without it, and retire after a few."""
        reason = run.stopped
        if reason is None or not self._seats[type(run.job)].abandon(run):
            return
        self.finisher.put(outcome_of(run, reason))
        self._abandoned += 1
        logger.error("%s: its thread does not end; abandoned %d so far", run.job, self._abandoned)
        if self._abandoned >= self._settings.max_abandoned:
            self._retired = True
            self.stop()

    def _drain(self) -> None:
        """Let jobs finish for the grace period, hand back the rest, write everything."""
        self.waker.close()
        deadline = time.monotonic() + self._grace
        if self._busy():
            logger.info("worker: stopping; what runs may go on for %g s", self._grace)
        if self._isolation is not None:
            self._isolation.stop()
        while self._stops < 2 and time.monotonic() < deadline and self._busy():
            self._wait(min(0.1, deadline - time.monotonic()))
        if self._isolation is not None:
            self._isolation.stop()
        self._release_all()
        if self._isolation is not None:
            self._isolation.join(SECONDS_TO_UNWIND + 2)
        self.finisher.close()
        self.finisher.join(timeout=10)
        self.beat.close()
        self.beat.join(timeout=5)
        for seats in self._seats.values():
            seats.close()

    def _busy(self) -> bool:
        return bool(len(self.running) or self._isolation)

    def _release_all(self) -> None:
        runs = self.running.all()
        for run in runs:
            run.stop(Released("The worker was stopped."))
        if runs and not self.running.wait_until_empty(SECONDS_TO_UNWIND):
            for run in self.running.all():
                run.kill_stragglers(after=0)
                self.finisher.put(outcome_of(run, Released("The worker was stopped.")))
