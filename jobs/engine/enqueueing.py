"""How jobs come into being: one INSERT in the caller's transaction."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Self, TypeVar

from django.db import (
    DEFAULT_DB_ALIAS,
    IntegrityError,
    connections,
    models,
    router,
    transaction,
)
from django.db.models.functions import Now
from django.dispatch import Signal

from jobs.engine.columns import check_columns
from jobs.engine.row import ACTIVE, OVER, JobRow, Status

# Sent inside the transaction that makes them true, with `kind` and `using`.
wanted = Signal()  # a worker of this kind has something to do
changed = Signal()  # a page that shows this kind has something to read

ROWS_PER_STATEMENT = 1000
CHANCES = 3

R = TypeVar("R", bound=JobRow)


class RowQuerySet(models.QuerySet[R]):
    """Which rows there are, and new ones."""

    _db: str | None

    def ready(self) -> Self:
        """Due rows in the order in which they are claimed."""
        return self.filter(status=Status.PENDING, due=True).order_by("-rank", "run_at", "id")

    def in_queue(self, name: str | None) -> Self:
        """Those of one queue; all of them without a name, or where the kind has no queues."""
        return self.filter(queue_name=name) if name and self.model.queued else self

    def future(self) -> Self:
        return self.filter(status=Status.PENDING, due=False).order_by("run_at")

    def ripe(self) -> Self:
        """Rows whose time has come and that no claim sees yet."""
        return self.future().filter(run_at__lte=Now())

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
            return self._put_row_at_commit(job, using)
        return self.put_row(job, using)

    def _put_row_at_commit(self, job: R, using: str) -> R:
        equal = self._equal(job, using) or _equal_at_commit(job, using)
        if equal is None:
            transaction.on_commit(AtCommit(self, job, using), using=DEFAULT_DB_ALIAS)
        return equal or job

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
        if job.unique_key is None:
            return None
        equal = self.using(using).filter(unique_key=job.unique_key, status__in=ACTIVE).first()
        if equal is not None:
            equal.duplicate = True
        return equal

    def enqueue_many(self, rows: Iterable[Mapping[str, Any]]) -> list[R]:
        """Insert pending jobs, 1,000 to a statement, in the caller's transaction.

        Raises like `enqueue`, and then nothing is stored; a taken `unique_key` raises
        IntegrityError.
        """
        jobs = [self.model(**self.born(columns)) for columns in rows]
        using = self._writes_to()
        if _commits_elsewhere(using):
            transaction.on_commit(lambda: self._put_rows(jobs, using), using=DEFAULT_DB_ALIAS)
        else:
            self._put_rows(jobs, using)
        return jobs

    def _put_rows(self, jobs: list[R], using: str) -> None:
        self.using(using).bulk_create(jobs, batch_size=ROWS_PER_STATEMENT)
        if jobs:
            wanted.send(self.model, kind=self.model.kind, using=using)

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
    """A job that gets its row in another database when the caller's transaction commits."""

    def __init__(self, rows: RowQuerySet[R], job: R, using: str) -> None:
        self._rows = rows
        self.job = job
        self.using = using

    def __call__(self) -> None:
        """Insert it; where an equal job was made meanwhile, the caller's object becomes that one."""
        equal = self._rows.put_row(self.job, self.using)
        if equal is not self.job:
            self.job.__dict__.update(equal.__dict__)


def _equal_at_commit[R: JobRow](job: R, using: str) -> R | None:
    """The job with the same key that the open transaction has enqueued already."""
    if job.unique_key is None:
        return None
    for entry in connections[DEFAULT_DB_ALIAS].run_on_commit:
        function = entry[1]
        if (
            isinstance(function, AtCommit)
            and function.using == using
            and type(function.job) is type(job)
            and function.job.unique_key == job.unique_key
        ):
            equal = copy.copy(function.job)
            equal.duplicate = True
            return equal
    return None


def _commits_elsewhere(using: str) -> bool:
    """A transaction is open on the default database, and the job lives in another."""
    return using != DEFAULT_DB_ALIAS and connections[DEFAULT_DB_ALIAS].in_atomic_block
