"""Ended jobs are deleted when they are old enough, with the files that they own."""

import logging
from datetime import timedelta

from django.db.models.functions import Now

from jobs.engine.conf import config
from jobs.engine.lifecycle import Job

logger = logging.getLogger(__name__)

BATCH = 500


def delete_old_jobs() -> dict[str, int]:
    """Delete completed, failed and cancelled jobs past their retention; {kind: how many}."""
    return {kind.kind: deleted for kind in Job.kinds() if (deleted := delete_old(kind))}


def delete_old(kind: type[Job]) -> int:
    """Delete the old jobs of one kind, a batch to a transaction; returns how many."""
    days = config().retention_days if kind.retention_days is None else kind.retention_days
    old = kind.objects.over().filter(completed_at__lt=Now() - timedelta(days=days))
    deleted = 0
    while jobs := list(old.order_by("completed_at")[:BATCH]):
        for job in jobs:
            job.delete_files()
        # The status is asked again: a person may have brought a failed job back meanwhile.
        gone, _by_model = old.filter(pk__in=[job.pk for job in jobs]).delete()
        deleted += gone
        if not gone:
            break
    if deleted:
        logger.info("deleted %d old jobs of %s", deleted, kind.kind)
    return deleted
