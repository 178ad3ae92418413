"""Attachments that no mail will come for are removed from the disk."""

import itertools
import logging
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from jobs import attachments
from jobs.models.email_job import EmailJob

logger = logging.getLogger(__name__)

DAY_SECONDS = 24 * 60 * 60.0
_IDS_IN_A_QUERY = 500


def sweep_attachments() -> dict[str, list[str]]:
    """Sweep what is older than a day; to be called by a schedule."""
    return {"removed": sweep(DAY_SECONDS)}


def sweep(older_than_seconds: float, *, now: float | None = None) -> list[str]:
    """Remove files whose mail has no row or has ended with its text erased; returns their ids.

    What was made less than so many seconds before `now` (seconds since 1970) stays: its row may be
    in a transaction that is still open.
    """
    before = (time.time() if now is None else now) - older_than_seconds
    old = [job_id for job_id in _there() if _made_at(attachments.place(job_id)) < before]
    removed = []
    for some in itertools.batched(old, _IDS_IN_A_QUERY):
        wanted = set(
            EmailJob.objects.filter(pk__in=some, erased_at=None).values_list("pk", flat=True)
        )
        for job_id in set(some) - wanted:
            attachments.delete(job_id)
            removed.append(str(job_id))
    if removed:
        logger.info("removed the attachments of %d mails: %s", len(removed), ", ".join(removed))
    return sorted(removed)


def _there() -> Iterator[uuid.UUID]:
    for path in sorted(attachments.root().glob("*")):
        try:
            yield uuid.UUID(path.name)
        except ValueError:
            continue


def _made_at(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return float("inf")
