"""What every job has: its columns, indexes and constraints, and what a kind may say about itself."""

import os
import time
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Self

from django.apps import apps
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from jobs.engine.conf import config
from jobs.engine.history import Entry, spent
from jobs.engine.retry import backoff

URGENT = 100
"""The highest priority. Age alone raises no job to it."""


class Status(models.TextChoices):
    PENDING = "pending", _("pending")
    RUNNING = "running", _("running")
    COMPLETED = "completed", _("completed")
    FAILED = "failed", _("failed")
    CANCELLED = "cancelled", _("cancelled")


ACTIVE = (Status.PENDING, Status.RUNNING)
OVER = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)


def uuid7() -> uuid.UUID:
    """A UUID of version 7 (RFC 9562): milliseconds since 1970, then 4096ths of one, then chance.

    So the order of ids is the order in which one process made them, also within a millisecond.
    """
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    fraction = rest * 4096 // 1_000_000
    chance = int.from_bytes(os.urandom(8)) >> 2
    return uuid.UUID(int=milliseconds << 80 | 0x7 << 76 | fraction << 64 | 0x2 << 62 | chance)


def default_max_attempts() -> int:
    return config().max_attempts


def default_max_running_seconds() -> float:
    return config().max_running_seconds


class JobRow(models.Model):
    """One piece of work: a row that is the truth about it. Kinds inherit this and `Job.Meta`."""

    kind: ClassVar[str]
    """The kind's short name: in seats, options, pauses and addresses."""
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Columns that `enqueue` fills when the caller does not."""
    retention_days: ClassVar[float | None] = None
    """How long an ended job is kept; JOBS["RETENTION_DAYS"] where the kind does not say."""
    atomic: ClassVar[bool] = False
    """`perform` and completion are one transaction: for short work whose effects are rows."""
    queued: ClassVar[bool] = False
    """Its jobs have a `queue_name`, by which a worker may be told to run only some of them."""
    retention_column: ClassVar[str | None] = None
    """A column with a job's own days to be kept, where there is one; NULL is what the kind says."""
    urgent_seats: ClassVar[int] = 0
    """How many of its seats are kept for jobs of the highest priority; half of them at the most."""
    progress_fields: ClassVar[Mapping[str, Any]] = {}
    """The kind's own progress columns, which `run.report()` may set, and their blank values."""

    duplicate = False
    """True on the job that `enqueue` returned in place of a new one with the same key."""
    paused = False
    """True on a waiting job that was read for a page while its kind is paused."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    status = models.CharField(_("status"), max_length=9, choices=Status, default=Status.PENDING)
    priority = models.SmallIntegerField(_("priority"), default=0)
    rank = models.SmallIntegerField(default=0, editable=False)
    run_at = models.DateTimeField(_("run at"), db_default=Now())
    due = models.BooleanField(default=True, editable=False)
    attempts = models.PositiveSmallIntegerField(_("attempts"), default=0)
    max_attempts = models.PositiveSmallIntegerField(
        _("attempts allowed"), default=default_max_attempts
    )
    max_running_seconds = models.FloatField(
        _("seconds allowed"), default=default_max_running_seconds
    )
    progress_pct = models.SmallIntegerField(_("percent"), default=0)
    progress_step = models.CharField(_("step"), max_length=200, blank=True, default="")
    progress_done = models.BigIntegerField(_("done"), null=True, blank=True)
    progress_total = models.BigIntegerField(_("of"), null=True, blank=True)
    error_message = models.TextField(_("error"), blank=True, default="")
    attempt_log = models.JSONField(_("attempts that did not complete"), blank=True, default=list)
    claim = models.UUIDField(null=True, blank=True, editable=False)
    lease_until = models.DateTimeField(_("lease until"), null=True, blank=True, editable=False)
    worker = models.CharField(_("worker"), max_length=200, blank=True, default="", editable=False)
    cancel_requested_at = models.DateTimeField(_("cancel asked"), null=True, blank=True)
    # NULL, because any number of jobs may have no key, but only one the key "".
    unique_key = models.CharField(max_length=300, null=True, blank=True, editable=False)  # noqa: DJ001
    concurrency_key = models.CharField(max_length=300, blank=True, default="", editable=False)
    # The worker died in this job's last attempt: this job, or one that ran beside it, killed it.
    suspect = models.BooleanField(default=False, editable=False)
    log = models.TextField(_("log"), blank=True, default="", editable=False)
    created_at = models.DateTimeField(_("created"), db_default=Now(), editable=False)
    started_at = models.DateTimeField(_("started"), null=True, blank=True)
    completed_at = models.DateTimeField(_("ended"), null=True, blank=True)

    class Meta:
        abstract = True
        indexes = [
            models.Index(
                fields=["-rank", "run_at", "id"],
                condition=Q(status="pending", due=True),
                name="%(app_label)s_%(class)s_ready",
            ),
            models.Index(
                fields=["run_at"],
                condition=Q(status="pending", due=False),
                name="%(app_label)s_%(class)s_future",
            ),
            models.Index(
                fields=["id"], condition=Q(status="running"), name="%(app_label)s_%(class)s_run"
            ),
            models.Index(
                fields=["completed_at"],
                condition=Q(status__in=["completed", "failed", "cancelled"]),
                name="%(app_label)s_%(class)s_over",
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["unique_key"],
                condition=Q(status__in=["pending", "running"]),
                name="%(app_label)s_%(class)s_key",
            ),
            models.CheckConstraint(
                condition=Q(status="running", claim__isnull=False, lease_until__isnull=False)
                | Q(~Q(status="running"), claim__isnull=True, lease_until__isnull=True),
                name="%(app_label)s_%(class)s_claim",
            ),
            models.CheckConstraint(
                condition=Q(progress_pct__gte=0, progress_pct__lte=100),
                name="%(app_label)s_%(class)s_percent",
            ),
            models.CheckConstraint(
                condition=Q(status__in=["pending", "running", "completed", "failed", "cancelled"]),
                name="%(app_label)s_%(class)s_status",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"

    @property
    def is_over(self) -> bool:
        return self.status in OVER

    @property
    def spent_attempts(self) -> list[Entry]:
        """The log's entries of the attempts that `attempts` counts and that are over."""
        open_or_good = self.status in (Status.RUNNING, Status.COMPLETED)
        return spent(self.attempt_log, self.attempts - open_or_good)

    def log_entry(self, outcome: str, *, ended_at: datetime | None, **more: str) -> dict[str, Any]:
        """One line of the attempt log; times in ISO 8601, of the database's clock."""
        return {
            "number": self.attempts,
            "worker": self.worker,
            "started_at": self.started_at.isoformat() if self.started_at else None,
            "ended_at": ended_at.isoformat() if ended_at else None,
            "outcome": outcome,
            "error_class": "",
            "message": "",
            "traceback": "",
            **more,
        }

    # What a kind writes itself.

    def perform(self, run: Any) -> Any:
        """Do the work; safe to run twice. `run` is a `jobs.engine.execution.Run`."""
        raise NotImplementedError

    def on_completed(self, result: Any) -> Mapping[str, Any]:
        """Follow-up work in the completing transaction; returns the kind's own columns to set."""
        return {}

    def on_failed(self, entry: Entry) -> None:
        """Follow-up work in the failing transaction; `entry` is the attempt log's last line.

        Not for retries and cancels. What it did is undone when it raises; the job fails all the
        same. It may raise OperationalError: then the failure is written anew, with this, later.
        """

    def in_doubt(self) -> bool:
        """Whether only another attempt can say what the last one did, whose worker was lost.

        Then there is one, even if none was left: its number is `max_attempts` + 1.
        """
        return False

    def at_end(self, status: Status) -> Mapping[str, Any]:
        """The kind's own columns to set in the statement that ends the job with this status."""
        return {}

    def backoff(self, attempt: int) -> float:
        """Seconds to wait after attempt number `attempt` failed."""
        return backoff(attempt, base=config().backoff_base, cap=config().backoff_cap_seconds)

    def discard(self, result: Any) -> None:
        """Clean up a result of `perform` whose attempt could not be completed."""

    def delete_files(self) -> None:
        """Delete the files that the job owns, before its row is deleted."""

    def on_lost(self) -> None:
        """Clean up what the attempt left whose worker was lost; the row has moved on since."""

    def on_over(self) -> None:
        """Tell others of the end, however the job ended: called when it is committed, at most once.

        Where the engine writes outcomes it runs on the thread that does so: keep it short.
        """

    def runs_atomically(self) -> bool:
        """Whether this very job is `atomic`."""
        return self.atomic

    def has_follow_up(self, result: Any) -> bool:
        """Whether completing with this result sets more than the status, in its own transaction."""
        kind = type(self)
        return kind.on_completed is not JobRow.on_completed or kind.at_end is not JobRow.at_end

    def check_requeue(self) -> None:
        """Raise Refused if this ended job must not run again."""

    # The kind as a whole.

    @classmethod
    def kinds(cls) -> "list[type[Self]]":
        """Every installed kind."""
        return [model for model in apps.get_models() if issubclass(model, cls)]

    @classmethod
    def blank_progress(cls) -> dict[str, Any]:
        blank = {
            "progress_pct": 0,
            "progress_step": "",
            "progress_done": None,
            "progress_total": None,
        }
        return blank | dict(cls.progress_fields)
