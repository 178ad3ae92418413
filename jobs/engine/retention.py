"""Ended jobs are deleted when they are old enough, with the files that they own."""

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.db.models.functions import Now

from jobs.engine.conf import MOST_DAYS, config
from jobs.engine.lifecycle import Job, JobQuerySet

logger = logging.getLogger(__name__)

BATCH = 500


def delete_old_jobs() -> dict[str, int]:
    """Delete completed, failed and cancelled jobs past their retention; {kind: how many}.

    A kind that fails keeps no other from its turn; then raises ExceptionGroup.
    """
    deleted: dict[str, int] = {}
    errors: list[Exception] = []
    for kind in Job.kinds():
        try:
            deleted[kind.kind] = delete_old(kind)
        except Exception as error:
            errors.append(error)
    if errors:
        raise ExceptionGroup("Old jobs of some kinds could not be deleted", errors)
    return {name: number for name, number in deleted.items() if number}


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
    # Rows of older versions may have more days than there are.
    old = over.filter(completed_at__lt=Now() - timedelta(days=min(days, MOST_DAYS)))
    deleted = 0
    kept: list[Any] = []
    while jobs := list(old.exclude(pk__in=kept).order_by(*led_by, "completed_at")[:BATCH]):
        bare = [job.pk for job in jobs if _without_files(job)]
        kept += {job.pk for job in jobs} - set(bare)
        # The status is asked again: a person may have brought a failed job back meanwhile.
        gone, _by_model = old.filter(pk__in=bare).delete()
        deleted += gone
        if not gone or len(kept) >= BATCH:
            break
    return deleted


def _without_files(job: Job) -> bool:
    """Delete the files of a job; False where that fails, and then its row stays for the next time."""
    try:
        job.delete_files()
    except Exception:
        logger.exception("%s: its files cannot be deleted; it is kept", job)
        return False
    return True
