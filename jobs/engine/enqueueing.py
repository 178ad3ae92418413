"""How jobs come into being: one INSERT in the caller's transaction."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import batched
from typing import Any, Self, TypeVar

from django.db import (
    DEFAULT_DB_ALIAS,
    IntegrityError,
    connections,
    models,
    router,
    transaction,
)
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now
from django.dispatch import Signal

from jobs.engine.columns import check_columns
from jobs.engine.row import ACTIVE, OVER, URGENT, JobRow, Status

# Sent inside the transaction that makes them true, with `kind` and `using`.
wanted = Signal()  # a worker of this kind has something to do
changed = Signal()  # a page that shows this kind has something to read

ROWS_PER_STATEMENT = 1000
CHANCES = 3
# ACTIVE in the words of the key's partial index: SQLite takes that index for no bound list.
ACTIVE_WORDS = [RawSQL(f"'{status.value}'", ()) for status in ACTIVE]  # noqa: S611 - constants

R = TypeVar("R", bound=JobRow)


class RowQuerySet(models.QuerySet[R]):
    """Which rows there are, when they are due, and new ones."""

    _db: str | None

    def ready(self) -> Self:
        """Due rows in the order in which they are claimed."""
        return self.filter(status=Status.PENDING, due=True).order_by("-rank", "run_at", "id")

    def urgent(self) -> Self:
        """Those of the highest priority."""
        return self.filter(rank__gte=URGENT)

    def in_queue(self, name: str | None) -> Self:
        """Those of one queue; all of them without a name, or where the kind has no queues."""
        return self.filter(queue_name=name) if name and self.model.queued else self

    def future(self) -> Self:
        return self.filter(status=Status.PENDING, due=False).order_by("run_at")

    def ripe(self) -> Self:
        """Rows whose time has come and that no claim sees yet."""
        return self.future().filter(run_at__lte=Now())

    def mature(self, limit: int = 1000) -> int:
        """Make rows claimable whose time has come; returns how many."""
        batch = self.ripe().values("pk")[:limit]
        return self.filter(
            pk__in=list(batch.values_list("pk", flat=True)), status=Status.PENDING
        ).update(due=True)

    def put_off(self, moments: Mapping[Any, datetime], *also: str, **columns: Any) -> int:
        """Make due jobs {id: when} wait for their moment, which goes to the columns `also` as well.

        All of them get `columns`. Those that somebody claimed meanwhile are left alone; returns how
        many were not.
        """
        # One short statement many times: a single one with a CASE for each row costs ten times that.
        held = {"status": Status.PENDING, "due": True}
        named = ["run_at", *also, "due", *columns]
        rows = [
            [*[moment] * (1 + len(also)), False, *columns.values(), pk, *held.values()]
            for pk, moment in moments.items()
        ]
        written = self._execute_many(named, ["id", *held], rows)
        if written:
            changed.send(self.model, kind=self.model.kind, using=self.db)
        return written

    def _execute_many(
        self, named: Sequence[str], where: Sequence[str], rows: Iterable[Sequence[Any]]
    ) -> int:
        """UPDATE the columns `named` where those in `where` are equal, once for each row of values."""
        connection = connections[self.db]
        meta, quote = self.model._meta, connection.ops.quote_name
        fields: list[Any] = [meta.get_field(name) for name in (*named, *where)]
        asked = [f"{quote(field.column)} = %s" for field in fields]
        assigned, matched = ", ".join(asked[: len(named)]), " AND ".join(asked[len(named) :])
        values = [
            [
                field.get_db_prep_save(value, connection)
                for field, value in zip(fields, row, strict=True)
            ]
            for row in rows
        ]
        with connection.cursor() as cursor:
            sql = f"UPDATE {quote(meta.db_table)} SET {assigned} WHERE {matched}"  # noqa: S608 - names
            cursor.executemany(sql, values)
            return int(cursor.rowcount)

    def expired(self) -> Self:
        return self.filter(status=Status.RUNNING, lease_until__lt=Now())

    def over(self) -> Self:
        return self.filter(status__in=OVER)

    def enqueue(self, **columns: Any) -> R:
        """Insert one pending job in the caller's transaction.

        `run_at` puts it off. With `unique_key`, an equal pending or running job is returned in
        place of a new one, its `duplicate` true. Raises TypeError or ValueError, which names the
        column, for what cannot be stored.

        A kind that lives in a database of its own is inserted when the caller's transaction
        commits; until then the job has no row, and a crash between the two commits loses it.
        """
        job = self.model(**self.born(columns))
        using = self._writes_to()
        if _commits_elsewhere(using):
            return self._put_at_commit([job], using)[0]
        return self.put_row(job, using)

    def put_row(self, job: R, using: str) -> R:
        """Insert `job`, or return the active one that has its key."""
        for chance in range(CHANCES, 0, -1):
            try:
                with transaction.atomic(using=using):
                    job.save(force_insert=True, using=using)
                break
            except IntegrityError:
                equal = self._equal(job, using)
                if equal is not None:
                    return equal
                # The equal job may have ended between the two statements: then this one is new.
                if job.unique_key is None or chance == 1:
                    raise
        wanted.send(self.model, kind=self.model.kind, using=using)
        return job

    def _equal(self, job: R, using: str) -> R | None:
        return self._active([job], using).get(job.unique_key)

    def _active(self, jobs: Iterable[R], using: str) -> dict[str | None, R]:
        """{key: the active job that has it}, marked as duplicates."""
        keys = {job.unique_key for job in jobs if job.unique_key is not None}
        if not keys:
            return {}
        # In one order, so that the statement is the same for the same keys.
        rows = self.using(using).filter(unique_key__in=sorted(keys), status__in=ACTIVE_WORDS)
        return {equal.unique_key: _as_duplicate(equal) for equal in rows}

    def enqueue_many(self, rows: Iterable[Mapping[str, Any]]) -> list[R]:
        """Insert pending jobs, 1,000 to a statement, in the caller's transaction.

        Raises like `enqueue`, and then nothing is stored. In place of a row whose `unique_key` is
        taken, by a stored job or by a row before it, that job is returned, its `duplicate` true.
        """
        jobs = [self.model(**self.born(columns)) for columns in rows]
        using = self._writes_to()
        if _commits_elsewhere(using):
            return self._put_at_commit(jobs, using)
        return self.put_rows(jobs, using)

    def put_rows(self, jobs: Sequence[R], using: str) -> list[R]:
        """Insert `jobs`, or find the active one that has the key: all or none of them."""
        stored: list[R] = []
        with transaction.atomic(using=using):
            for batch in batched(jobs, ROWS_PER_STATEMENT):
                stored += self._put_batch(batch, using)
        if not all(job.duplicate for job in stored):
            wanted.send(self.model, kind=self.model.kind, using=using)
        return stored

    def _put_batch(self, jobs: Sequence[R], using: str) -> list[R]:
        if all(job.unique_key is None for job in jobs):
            return self.using(using).bulk_create(jobs)
        for _ in range(CHANCES):
            taken = self._active(jobs, using)
            new = _first_of_each(jobs, taken)
            try:
                # Not ON CONFLICT DO NOTHING, which returns no columns and hides other conflicts.
                with transaction.atomic(using=using):
                    # In one order, so that two callers with the same keys do not block each other.
                    self.using(using).bulk_create(sorted(new, key=_key))
            except IntegrityError:
                # A key was taken since it was looked for; what else it may be is told below.
                continue
            return _each_or_its_equal(jobs, new, taken)
        return [self.put_row(job, using) for job in jobs]

    def _put_at_commit(self, jobs: Sequence[R], using: str) -> list[R]:
        taken = _equals_at_commit(self.model, using)
        for batch in batched(jobs, ROWS_PER_STATEMENT):
            taken |= self._active(batch, using)
        new = _first_of_each(jobs, taken)
        if new:
            transaction.on_commit(AtCommit(self, new, using), using=DEFAULT_DB_ALIAS)
        return _each_or_its_equal(jobs, new, taken)

    def _writes_to(self) -> str:
        return self._db or router.db_for_write(self.model)

    def born(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """All columns of a new job; raises TypeError or ValueError for what cannot be stored."""
        born = {**self.model.defaults, **columns}
        check_columns(self.model, born)
        born.update(rank=born.get("priority", 0), due=born.get("run_at") is None)
        if born["due"]:
            born.pop("run_at", None)
        return born


class AtCommit[R: JobRow]:
    """Jobs that get their rows in another database when the caller's transaction commits."""

    def __init__(self, rows: RowQuerySet[R], jobs: Sequence[R], using: str) -> None:
        self._rows = rows
        self.jobs = jobs
        self.using = using

    def __call__(self) -> None:
        """Insert them; where an equal job was made meanwhile, the caller's object becomes that."""
        for job, stored in zip(self.jobs, self._rows.put_rows(self.jobs, self.using), strict=True):
            if stored is not job:
                job.__dict__.update(stored.__dict__)


def _equals_at_commit[R: JobRow](model: type[R], using: str) -> dict[str | None, R]:
    """{key: the job that the open transaction has enqueued already}, marked as duplicates."""
    functions = [entry[1] for entry in connections[DEFAULT_DB_ALIAS].run_on_commit]
    return {
        job.unique_key: _as_duplicate(copy.copy(job))
        for function in functions
        if isinstance(function, AtCommit) and function.using == using
        for job in function.jobs
        if type(job) is model and job.unique_key is not None
    }


def _key(job: JobRow) -> str:
    return job.unique_key or ""


def _as_duplicate[R: JobRow](job: R) -> R:
    job.duplicate = True
    return job


def _first_of_each[R: JobRow](jobs: Iterable[R], taken: Mapping[str | None, R]) -> list[R]:
    """The jobs that get a row: those without a key, and the first with each that is not taken."""
    keys: set[str | None] = {*taken} - {None}
    new = []
    for job in jobs:
        if job.unique_key is None or job.unique_key not in keys:
            keys.add(job.unique_key)
            new.append(job)
    return new


def _each_or_its_equal[R: JobRow](
    jobs: Iterable[R], new: Iterable[R], taken: Mapping[str | None, R]
) -> list[R]:
    """Each job if it is new, else the one that has its key, as a duplicate."""
    firsts: dict[str | None, R] = {job.unique_key: job for job in new}
    found = []
    for job in jobs:
        first = firsts.get(job.unique_key)
        if job.unique_key is None or first is job:
            found.append(job)
        else:
            found.append(_as_duplicate(copy.copy(first or taken[job.unique_key])))
    return found


def _commits_elsewhere(using: str) -> bool:
    """A transaction is open on the default database, and the job lives in another."""
    return using != DEFAULT_DB_ALIAS and connections[DEFAULT_DB_ALIAS].in_atomic_block
