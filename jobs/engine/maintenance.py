"""What keeps the tables right: one look at them, rescue, and rows whose time has come."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db import connections, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils.dateparse import parse_datetime

from jobs.engine import identity
from jobs.engine.kinds import Pause
from jobs.engine.lifecycle import Job
from jobs.engine.schedules import Schedule

logger = logging.getLogger(__name__)

# A sweep that had to wait this long for the database lets others renew their leases first.
LONG_WAIT = 0.5
SECOND_LOOK = 0.5

Kind = type[Job]


@dataclass(slots=True)
class Sight:
    """What one look at the tables of some kinds showed."""

    due: set[Kind] = field(default_factory=set)
    suspects: set[Kind] = field(default_factory=set)
    paused: set[Kind] = field(default_factory=set)
    neighbours: set[Kind] = field(default_factory=set)
    """Kinds that run in other processes of this machine too."""
    urgent: set[Kind] = field(default_factory=set)
    """Kinds that keep seats for urgent jobs, and have some that are due."""
    ripe: set[Kind] = field(default_factory=set)
    expired: set[Kind] = field(default_factory=set)
    ticks: bool = False
    """A schedule is due."""
    next_in: float | None = None
    """Seconds until the next future row or schedule is due, on the database's clock."""


class Question:
    """Many small questions in one statement; its first answer is the database's time."""

    def __init__(self, using: str) -> None:
        self._connection = connections[using]
        self._parts: list[str] = []
        self._parameters: list[Any] = []

    def add(self, template: str, *several: QuerySet[Any]) -> None:
        """Ask by `template`, of any of several sets of rows."""
        found = []
        for rows in several:
            sql, values = rows.query.get_compiler(connection=self._connection).as_sql()
            found.append(template.format(sql))
            self._parameters.extend(values)
        self._parts.append(" OR ".join(found))

    def ask(self, any_rows: QuerySet[Any]) -> Sequence[Any]:
        compiler = any_rows.query.get_compiler(connection=self._connection)
        now, values = compiler.compile(Now())
        with self._connection.cursor() as cursor:
            parts = ", ".join([now, *self._parts])
            cursor.execute(f"SELECT {parts}", [*values, *self._parameters])
            answers: Sequence[Any] = cursor.fetchone()
        return answers


def look(
    kinds: Sequence[Kind], *, using: str, worker: str = "", queues: Sequence[str] = ()
) -> Sight:
    """See what there is to do, for all kinds in one statement that only reads.

    With `queues`, what waits in others is not there to be done; that the time of a row has come, and
    that a lease has passed, is everybody's matter.
    """
    question = Question(using)
    add = question.add
    # Pauses and schedules are in one database, which need not be that of these kinds.
    beside = Pause.objects.db == using

    for kind in kinds:
        rows = kind.objects.using(using)
        ready: Any = rows.ready().order_by()
        names: Sequence[str | None] = queues if queues and kind.queued else [None]
        served = [ready.in_queue(name).values("pk") for name in names]
        add("EXISTS ({})", *(some.filter(suspect=False) for some in served))
        add("EXISTS ({})", *(some.filter(suspect=True) for some in served))
        pauses = Pause.objects.using(using).filter(kind=kind.kind if beside else "")
        add("EXISTS ({})", pauses.values("pk"))
        add("EXISTS ({})", _beside(rows, worker).values("pk"))
        add("EXISTS ({})", rows.ripe().order_by().values("pk"))
        add("EXISTS ({})", rows.expired().values("pk"))
        if kind.urgent_seats:
            add("EXISTS ({})", *(some.urgent() for some in served))
        add("({})", rows.future().values("run_at")[:1])
    schedules = Schedule.objects.using(using)
    schedules = schedules if beside else schedules.filter(name="")
    add("EXISTS ({})", schedules.due().values("pk"))
    planned = schedules.filter(enabled=True, next_at__isnull=False).order_by("next_at")
    add("({})", planned.values("next_at")[:1])
    now, *values = question.ask(kinds[0].objects.all())
    sight = _sight(kinds, _moment(now), values)
    if not beside:
        paused = set(Pause.objects.values_list("kind", flat=True))
        sight.paused = {kind for kind in kinds if kind.kind in paused}
    return sight


def _sight(kinds: Sequence[Kind], now: datetime, values: Sequence[Any]) -> Sight:
    *values, ticks, next_tick = values
    sight = Sight(ticks=bool(ticks))
    moments = [next_tick]
    answers = iter(values)
    for kind in kinds:
        seen = [
            sight.due,
            sight.suspects,
            sight.paused,
            sight.neighbours,
            sight.ripe,
            sight.expired,
        ]
        if kind.urgent_seats:
            seen.append(sight.urgent)
        for kinds_seen in seen:
            if next(answers):
                kinds_seen.add(kind)
        moments.append(next(answers))
    waits = [(_moment(moment) - now).total_seconds() for moment in moments if moment is not None]
    sight.next_in = max(0.0, min(waits)) if waits else None
    return sight


def _moment(value: Any) -> datetime:
    """A time as the database's driver gives it: SQLite has text."""
    moment = parse_datetime(value) if isinstance(value, str) else value
    if not isinstance(moment, datetime):
        raise TypeError(f"not a time: {value!r}")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _beside(rows: Any, worker: str) -> Any:
    """Running rows of other processes of this machine."""
    prefix = identity.machine_prefix()
    running = rows.filter(status="running")
    if prefix is None:
        return running.none()
    return running.filter(worker__startswith=prefix).exclude(worker=worker)


def rescue_dead(kind: Kind, *, worker: str = "") -> list[Job]:
    """Rescue at once what ran in processes of this machine that are dead."""
    running = _beside(kind.objects.all(), worker)
    dead = [
        worker
        for worker in running.values_list("worker", flat=True).distinct()
        if identity.is_dead(worker)
    ]
    return _told(kind.objects.rescue(dead=dead)) if dead else []


class Sweeper:
    """Rescues rows whose lease passed, after a second look.

    One long writer can keep every heartbeat of an SQLite database waiting, and a paused machine
    wakes with all leases passed. Those who still live renew within a moment, so nobody is taken
    for dead on the first sight, nor right after the database itself kept us waiting.
    """

    def __init__(self) -> None:
        self._seen: dict[Kind, float] = {}

    def sweep(self, kind: Kind, *, expired: bool) -> list[Job]:
        """Rescue, if `kind` had expired rows at an earlier look too; returns the jobs."""
        now = time.monotonic()
        if not expired:
            self._seen.pop(kind, None)
            return []
        if now - self._seen.setdefault(kind, now) < SECOND_LOOK:
            return []
        with transaction.atomic(using=kind.objects.db):
            if time.monotonic() - now > LONG_WAIT:
                self._seen.pop(kind)
                return []
            return _told(kind.objects.rescue())


def _told(jobs: Sequence[Job]) -> list[Job]:
    for job in jobs:
        logger.warning("%s: worker %s was lost in attempt %d", job, job.worker, job.attempts)
        # Not in the rescue's own transaction, which holds locks, and only if that is committed.
        transaction.on_commit(job.on_lost, using=type(job).objects.db, robust=True)
    return list(jobs)
