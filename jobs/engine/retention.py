"""Ended jobs are deleted when they are old enough, with the files that they own."""

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.db.models.functions import Now

from jobs.engine.conf import config
from jobs.engine.lifecycle import Job, JobQuerySet

logger = logging.getLogger(__name__)

BATCH = 500


def delete_old_jobs() -> dict[str, int]:
    """Delete completed, failed and cancelled jobs past their retention; {kind: how many}."""
    return {kind.kind: deleted for kind in Job.kinds() if (deleted := delete_old(kind))}


def delete_old(kind: type[Job]) -> int:
    """Delete the old jobs of one kind, a batch to a transaction; returns how many."""
    days = config().retention_days if kind.retention_days is None else kind.retention_days
    over = kind.objects.over()
    column = kind.retention_column
    if column is None:
        deleted = _delete(over, days)
    else:
        deleted = _delete(over.filter(**{f"{column}__isnull": True}), days, column)
        for own in _different(over, column):
            deleted += _delete(over.filter(**{column: own}), own, column)
    if deleted:
        logger.info("deleted %d old jobs of %s", deleted, kind.kind)
    return deleted


def _different(over: JobQuerySet[Any], column: str) -> Iterator[float]:
    """The values of a column, one short look at its index for each: no reading of all rows."""
    values = over.order_by(column).values_list(column, flat=True)
    own = values.filter(**{f"{column}__isnull": False}).first()
    while own is not None:
        yield own
        own = values.filter(**{f"{column}__gt": own}).first()


def _delete(over: JobQuerySet[Any], days: float, *led_by: str) -> int:
    """Delete what ended so many days ago, in the order of the index that serves it."""
    old = over.filter(completed_at__lt=Now() - timedelta(days=days))
    deleted = 0
    while jobs := list(old.order_by(*led_by, "completed_at")[:BATCH]):
        for job in jobs:
            job.delete_files()
        # The status is asked again: a person may have brought a failed job back meanwhile.
        gone, _by_model = old.filter(pk__in=[job.pk for job in jobs]).delete()
        deleted += gone
        if not gone:
            break
    return deleted
