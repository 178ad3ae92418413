"""The state machine: every change of a job's status is in this file."""

import copy
import logging
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar

from django.db import IntegrityError, InterfaceError, OperationalError, transaction
from django.db.models import F, Q, Value
from django.db.models.functions import Now, StrIndex
from django.dispatch import Signal
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop

from jobs.engine.concurrency import Room
from jobs.engine.enqueueing import RowQuerySet, changed, wanted
from jobs.engine.history import with_entry
from jobs.engine.kinds import KindLock
from jobs.engine.retry import WorkerLost
from jobs.engine.row import OVER, JobRow, Status

logger = logging.getLogger(__name__)

UNCLAIMED: Mapping[str, Any] = {"claim": None, "lease_until": None}


class LostClaim(Exception):
    """The row is not, or no longer, in the state and under the claim that the verb is about."""


class Refused(Exception):
    """A person's wish that the state of things forbids; the message says why."""


J = TypeVar("J", bound="Job")


class JobQuerySet(RowQuerySet[J]):
    """The verbs that concern many rows."""

    def claim(
        self,
        limit: int,
        *,
        worker: str,
        lease_seconds: float,
        suspects: bool = False,
        urgent: bool = False,
        queue: str | None = None,
    ) -> list[J]:
        """Claim up to `limit` due jobs, most urgent and then oldest first; may return fewer.

        With `queue` only those of that one, with `urgent` those of the highest priority. Keys are
        exact over all workers. Jobs in whose last attempt the worker died are left out, or alone
        are taken, with `suspects`.
        """
        claim = uuid.uuid4()
        with transaction.atomic(using=self.db):
            ready = self.ready().in_queue(queue).filter(suspect=suspects)
            picked = self._pick(ready.urgent() if urgent else ready, limit)
            if not picked:
                return []
            now: datetime = picked[0].now
            fields: dict[str, Any] = {
                "claim": claim,
                "lease_until": now + timedelta(seconds=lease_seconds),
                "worker": worker,
                "started_at": now,
                **self.model.blank_progress(),
            }
            taken = self.filter(pk__in=[job.pk for job in picked], status=Status.PENDING).update(
                status=Status.RUNNING, attempts=F("attempts") + 1, error_message="", **fields
            )
            if taken != len(picked):
                raise LostClaim(f"{taken} of {len(picked)} rows were still pending")
            changed.send(self.model, kind=self.model.kind, using=self.db)
        for job in picked:
            job._remember(Status.RUNNING, attempts=job.attempts + 1, **fields)
        return picked

    def _pick(self, ready: Any, limit: int) -> list[Any]:
        """Lock the rows to claim, skipping what others hold and what keys do not let pass."""
        ready = ready.select_for_update(skip_locked=True).annotate(now=Now())
        rows: list[Any] = list(ready[:limit])
        if not any(job.concurrency_key for job in rows):
            return rows
        KindLock.hold(self.model.kind, using=self.db)
        keyed = self.filter(status=Status.RUNNING).exclude(concurrency_key="")
        room = Room(keyed.values_list("concurrency_key", flat=True))
        picked = [job for job in rows if room.admit(job.concurrency_key)]
        while len(picked) < limit:
            free = ready.exclude(pk__in=[job.pk for job in picked])
            for number, entry in enumerate(room.full):
                # LIKE takes no notice of case on SQLite.
                at = {f"at_{number}": StrIndex("concurrency_key", Value(entry))}
                free = free.alias(**at).filter(**{f"at_{number}": 0})
            rows = list(free[: limit - len(picked)])
            picked += [job for job in rows if room.admit(job.concurrency_key)]
            if not rows:
                break
        return picked

    def renew(
        self, claims: Mapping[uuid.UUID, uuid.UUID], *, lease_seconds: float
    ) -> set[uuid.UUID]:
        """Extend the leases of {id: claim} in one statement; returns the ids that are lost."""
        ours = self.filter(
            status=Status.RUNNING, pk__in=list(claims), claim__in=set(claims.values())
        )
        renewed = ours.update(lease_until=Now() + timedelta(seconds=lease_seconds))
        if renewed == len(claims):
            return set()
        held = dict(ours.values_list("pk", "claim"))
        return {pk for pk, claim in claims.items() if held.get(pk) != claim}

    def cancel_requests(self, claims: Mapping[uuid.UUID, uuid.UUID]) -> set[uuid.UUID]:
        """The ids among {id: claim} whose cancelling was asked for."""
        asked = self.filter(
            status=Status.RUNNING, pk__in=list(claims), cancel_requested_at__isnull=False
        )
        return {pk for pk, claim in asked.values_list("pk", "claim") if claims[pk] == claim}

    def complete_all(self, jobs: Sequence[J]) -> None:
        """Complete jobs that have no follow-up work; raises LostClaim unless all of them were ours."""
        by_claim: dict[uuid.UUID | None, list[uuid.UUID]] = {}
        for job in jobs:
            by_claim.setdefault(job.claim, []).append(job.pk)
        for claim, ids in by_claim.items():
            done = self.filter(pk__in=ids, status=Status.RUNNING, claim=claim).update(
                status=Status.COMPLETED,
                completed_at=Now(),
                progress_pct=100,
                suspect=False,
                **UNCLAIMED,
            )
            if done != len(ids):
                raise LostClaim(f"{len(ids) - done} of {len(ids)} claims were lost")
        for job in jobs:
            job._end(Status.COMPLETED, progress_pct=100)
        changed.send(self.model, kind=self.model.kind, using=self.db)
        if any(job.concurrency_key for job in jobs):
            wanted.send(self.model, kind=self.model.kind, using=self.db)

    def rescue(self, *, dead: Collection[str] = (), limit: int = 100) -> list[J]:
        """End the attempts whose lease passed or whose worker is in `dead`; returns these jobs."""
        lost = Q(lease_until__lt=Now()) | Q(worker__in=dead)
        with transaction.atomic(using=self.db):
            rows = self.filter(lost, status=Status.RUNNING).annotate(now=Now())
            jobs: list[Any] = list(rows.select_for_update(skip_locked=True)[:limit])
            return [job for job in jobs if job._rescue(lost)]


class Job(JobRow):
    """One piece of work: a row that is the truth about it. Kinds inherit this and `Job.Meta`."""

    objects = JobQuerySet.as_manager()

    class Meta(JobRow.Meta):
        abstract = True

    def complete(self, result: Any = None) -> None:
        """running → completed, with the kind's follow-up work, in one transaction."""
        with transaction.atomic(using=self._state.db):
            self._move(
                Status.COMPLETED, completed_at=Now(), progress_pct=100, suspect=False, **UNCLAIMED
            )
            columns = self.on_completed(result)
            if columns:
                self._rows().filter(pk=self.pk, status=Status.COMPLETED).update(**columns)
            self._end(Status.COMPLETED, progress_pct=100, **columns)

    def report(self, **columns: Any) -> None:
        """running → running: progress columns only."""
        self._move(Status.RUNNING, **columns)

    def note(self, *, among: Q | None = None, **columns: Any) -> None:
        """running → running: the kind's own columns, if the row is `among`; else LostClaim too."""
        self._move(Status.RUNNING, among=among, **columns)

    def retry_later(self, delay: float, entry: Mapping[str, Any]) -> None:
        """running → pending, due in `delay` seconds; the attempt stays spent."""
        self._back(
            entry,
            error_message=entry["message"],
            suspect=False,
            **self._later(delay),
            **self._logged(entry),
        )

    def fail(self, entry: Mapping[str, Any]) -> None:
        """running → failed, with the kind's follow-up work, in one transaction."""
        self._fail(entry, suspect=False)

    def cancelled(self, entry: Mapping[str, Any]) -> None:
        """running and asked → cancelled."""
        self._move(Status.CANCELLED, completed_at=Now(), **self._logged(entry), **UNCLAIMED)

    def release(self, entry: Mapping[str, Any]) -> None:
        """running → pending now, the attempt handed back; cancelled when that was asked."""
        self._back(entry, attempts=self.attempts - 1, **self._later(0), **self._logged(entry))

    def snooze(self, delay: float, entry: Mapping[str, Any]) -> None:
        """running → pending in `delay` seconds, the attempt handed back."""
        self._back(entry, attempts=self.attempts - 1, **self._later(delay), **self._logged(entry))

    def cancel(self) -> Status:
        """pending → cancelled, running → asked; returns the status after it, raises Refused."""
        mine = self._rows().filter(pk=self.pk)
        ended = {"status": Status.CANCELLED, "completed_at": Now(), "cancel_requested_at": Now()}
        ended |= self.at_end(Status.CANCELLED)
        with transaction.atomic(using=self._state.db):
            if mine.filter(status=Status.PENDING).update(**ended):
                # What is in memory may be of any age here.
                self._when_over(lambda: self._rows().get(pk=self.pk))
                self._tell(changed)
                return Status.CANCELLED
            if mine.filter(status=Status.RUNNING).update(cancel_requested_at=Now()):
                self._tell(changed)
                self._tell(wanted)
                return Status.RUNNING
        raise Refused(_("This job is over already: there is nothing to cancel."))

    def requeue(self) -> None:
        """failed, cancelled → pending with all attempts ahead and the history kept; raises Refused."""
        self.check_requeue()
        again = self._rows().filter(pk=self.pk, status__in=[Status.FAILED, Status.CANCELLED])
        fresh = {
            "suspect": False,
            "attempts": 0,
            "error_message": "",
            "completed_at": None,
            "cancel_requested_at": None,
        }
        try:
            with transaction.atomic(using=self._state.db):
                moved = again.update(
                    status=Status.PENDING, run_at=Now(), due=True, **fresh, **self.blank_progress()
                )
                if not moved:
                    raise Refused(_("Only a failed or cancelled job can be run again."))
                self._tell(changed)
                self._tell(wanted)
        except IntegrityError:
            raise Refused(_("The same work is already waiting or running.")) from None

    def _rows(self) -> JobQuerySet[Self]:
        queryset: JobQuerySet[Self] = type(self)._base_manager.using(self._state.db)  # type: ignore[assignment]
        return queryset

    def _move(self, to: Status, *, among: Q | None = None, **columns: Any) -> None:
        """The one way out of `running`: on primary key, status and claim; demands one row."""
        mine = self._rows().filter(
            among or Q(), pk=self.pk, status=Status.RUNNING, claim=self.claim
        )
        own = self.at_end(to) if to in OVER else {}
        with transaction.atomic(using=self._state.db):
            if mine.update(status=to, **{**columns, **own}) != 1:
                raise LostClaim(f"{self} is not ours any more")
            if to in (Status.FAILED, Status.CANCELLED):
                self._end(to, **columns)
            self._tell(changed)
            if to is Status.PENDING or (self.concurrency_key and to is not Status.RUNNING):
                self._tell(wanted)

    def _back(self, entry: Mapping[str, Any], **columns: Any) -> None:
        """running → pending, or cancelled when that was asked: nobody starts it again then."""
        asked = Q(cancel_requested_at__isnull=False)
        try:
            self._move(Status.PENDING, among=~asked, **self.blank_progress(), **columns)
        except LostClaim:
            over = {"completed_at": Now(), **self._logged(entry), **UNCLAIMED}
            self._move(Status.CANCELLED, among=asked, **over)

    def _fail(self, entry: Mapping[str, Any], *, among: Q | None = None, suspect: bool) -> None:
        over = {"completed_at": Now(), "suspect": suspect, **self._logged(entry), **UNCLAIMED}
        with transaction.atomic(using=self._state.db):
            self._move(Status.FAILED, among=among, error_message=entry["message"], **over)
            if type(self).on_failed is not JobRow.on_failed:
                self._follow_failure(entry)

    def _follow_failure(self, entry: Mapping[str, Any]) -> None:
        try:
            with transaction.atomic(using=self._state.db):
                self.on_failed(entry)
        except (OperationalError, InterfaceError):
            raise
        except Exception:
            # That it failed is true all the same, and nobody else would write it.
            logger.exception("%s: what follows from its failure was left undone", self)

    def _rescue(self, lost: Q) -> bool:
        entry = self.log_entry("worker lost", ended_at=self.now)  # type: ignore[attr-defined]
        entry["error_class"] = f"{WorkerLost.__module__}.{WorkerLost.__qualname__}"
        entry["message"] = gettext_noop("The worker died while running this.")
        logged = {**self._logged(entry), "suspect": True}
        try:
            if self.cancel_requested_at:
                over = {"completed_at": Now(), **logged, **UNCLAIMED}
                self._move(Status.CANCELLED, among=lost, **over)
            elif self.attempts >= self.max_attempts + self.in_doubt():
                self._fail(entry, among=lost, suspect=True)
            else:
                self._move(
                    Status.PENDING,
                    among=lost,
                    error_message=entry["message"],
                    **self._later(0),
                    **logged,
                    **self.blank_progress(),
                )
        except LostClaim:
            return False
        return True

    @staticmethod
    def _later(delay: float) -> dict[str, Any]:
        return {"run_at": Now() + timedelta(seconds=delay), "due": delay <= 0, **UNCLAIMED}

    def _logged(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        return {"attempt_log": with_entry(self.attempt_log, entry)}

    def _end(self, status: Status, **columns: Any) -> None:
        """Have `on_over` called when this is committed, on a copy that needs no reading."""

        def ended() -> Job:
            job = copy.copy(self)
            told = {**columns, **self.at_end(status)}
            known = {n: v for n, v in told.items() if not hasattr(v, "resolve_expression")}
            job._remember(status, **known, completed_at=timezone.now())
            return job

        self._when_over(ended)

    def _when_over(self, ended: "Callable[[], Job]") -> None:
        if type(self).on_over is not JobRow.on_over:
            transaction.on_commit(lambda: ended().on_over(), using=self._state.db, robust=True)

    def _tell(self, signal: Signal) -> None:
        signal.send(type(self), kind=self.kind, using=self._state.db)

    def _remember(self, status: Status, **columns: Any) -> None:
        self.status = status
        for name, value in columns.items():
            setattr(self, name, value)
