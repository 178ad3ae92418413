"""Recurring jobs: one for each tick, whatever the number of workers, also across restarts."""

import itertools
import logging
import zoneinfo
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from cronsim import CronSim, CronSimError
from django.core.exceptions import ValidationError
from django.db import DataError, IntegrityError, models, router, transaction
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from jobs.engine.lifecycle import Job

logger = logging.getLogger(__name__)

MISSED_AFTER = timedelta(seconds=60)


def check_time_zone(name: str) -> None:
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValidationError(
            _("“%(name)s” is no time zone; write one as in Europe/Paris."), params={"name": name}
        ) from None


def check_cron(expression: str) -> None:
    try:
        next(CronSim(expression, timezone.now()), None)
    except CronSimError:
        raise ValidationError(
            _("This is no cron expression; write five fields, as in 30 4 * * 1-5."), code="invalid"
        ) from None


class ScheduleQuerySet(models.QuerySet["Schedule"]):
    def due(self) -> "ScheduleQuerySet":
        return self.filter(enabled=True, next_at__lte=Now())

    def tick(self) -> list[Job]:
        """Enqueue what is due, each tick once; returns the jobs."""
        with transaction.atomic(using=self.db):
            rows: Any = self.due().select_for_update(skip_locked=True).annotate(now=Now())
            jobs = [schedule.try_tick(schedule.now) for schedule in rows]
        return [job for job in jobs if job is not None]


class Schedule(models.Model):
    """A job to be enqueued again and again."""

    class CatchUp(models.TextChoices):
        SKIP = "skip", _("skip what was missed")
        ONCE = "once", _("run once for all that was missed")

    name = models.CharField(_("name"), max_length=100, unique=True)
    cron = models.CharField(_("cron expression"), max_length=100, validators=[check_cron])
    time_zone = models.CharField(
        _("time zone"), max_length=60, default="UTC", validators=[check_time_zone]
    )
    kind = models.CharField(_("kind"), max_length=40, default="task")
    columns = models.JSONField(
        _("arguments"),
        blank=True,
        default=dict,
        help_text=_("Columns of the job, as in {“task”: “shop.tasks.report”, “payload”: {…}}."),
    )
    catch_up = models.CharField(
        _("after a pause"), max_length=4, choices=CatchUp, default=CatchUp.SKIP
    )
    enabled = models.BooleanField(_("enabled"), default=True)
    next_at = models.DateTimeField(_("next run"), null=True, blank=True, editable=False)
    last_at = models.DateTimeField(_("last run"), null=True, blank=True, editable=False)

    objects = ScheduleQuerySet.as_manager()

    class Meta:
        app_label = "jobs_engine"
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        indexes = [
            models.Index(
                fields=["next_at"],
                condition=models.Q(enabled=True),
                name="jobs_engine_schedule_next",
            )
        ]

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save, with the next tick counted from the database's now."""
        fields = kwargs.get("update_fields")
        if fields is None or {"cron", "time_zone", "enabled"} & set(fields):
            self.next_at = self.next_after(database_now()) if self.enabled else None
            if fields is not None:
                kwargs["update_fields"] = {*fields, "next_at"}
        super().save(*args, **kwargs)

    def clean(self) -> None:
        """Raise ValidationError for an unknown kind, or columns that would make no job."""
        kind = kind_called(self.kind)
        if kind is None:
            names = ", ".join(sorted(kind.kind for kind in Job.kinds()))
            raise ValidationError({"kind": _("Unknown kind. Kinds: %(names)s.") % {"names": names}})
        if not isinstance(self.columns, dict):
            raise ValidationError({"columns": _("Write an object, {…}.")})
        try:
            kind(**kind.objects.born(self.columns)).clean_fields()
        except (TypeError, ValueError, ValidationError) as error:
            raise ValidationError({"columns": str(error)}) from error

    def ticks(self, after: datetime) -> Iterator[datetime]:
        """The times at which it runs, in its own time zone; right over changes of the clock."""
        yield from CronSim(self.cron, after.astimezone(zoneinfo.ZoneInfo(self.time_zone)))

    def next_after(self, moment: datetime) -> datetime | None:
        return next(self.ticks(moment), None)

    def next_five(self) -> list[datetime]:
        return list(itertools.islice(self.ticks(timezone.now()), 5)) if self.enabled else []

    def try_tick(self, now: datetime) -> Job | None:
        """Like `tick`; a schedule whose columns make no job says so and waits for its next tick."""
        try:
            with transaction.atomic(using=self._state.db):
                return self.tick(now)
        except (TypeError, ValueError, ValidationError, IntegrityError, DataError):
            logger.exception("schedule %s: its job cannot be enqueued", self.name)
            mine = Schedule.objects.using(self._state.db).filter(pk=self.pk, next_at=self.next_at)
            mine.update(next_at=self.next_after(now))
            return None

    def tick(self, now: datetime) -> Job | None:
        """Enqueue the job of the tick `next_at` and plan the next, in the caller's transaction."""
        due = self.next_at
        mine = Schedule.objects.using(self._state.db).filter(pk=self.pk, next_at=due)
        if due is None or mine.update(next_at=self.next_after(now), last_at=due) != 1:
            return None
        kind = kind_called(self.kind)
        missed = now - due > MISSED_AFTER
        if kind is None or (missed and self.catch_up == self.CatchUp.SKIP):
            return None
        if kind.objects.db != self._state.db:
            transaction.on_commit(
                lambda: kind.objects.enqueue(**self.columns), using=self._state.db
            )
            return None
        return kind.objects.enqueue(**self.columns)


def built_in(name: str, *, cron: str, task: str, using: str) -> None:
    """Make the schedule of a task once; for a receiver of post_migrate, which knows `using`."""
    if using == router.db_for_write(Schedule):
        columns = {"task": task, "unique_key": name}
        Schedule.objects.using(using).get_or_create(
            name=name, defaults={"cron": cron, "columns": columns}
        )


def kind_called(name: str) -> type[Job] | None:
    return next((kind for kind in Job.kinds() if kind.kind == name), None)


def database_now() -> datetime:
    """The database's clock, where there is a row to ask by; else this process's."""
    using = router.db_for_read(Schedule)
    row = Schedule.objects.using(using).annotate(now=Now()).values_list("now", flat=True).first()
    return row if isinstance(row, datetime) else timezone.now()
