"""How imports are read and rendered for pages and their streams."""

import uuid
from collections.abc import Collection, Mapping
from functools import cache

from django.db import DEFAULT_DB_ALIAS
from django.template.loader import render_to_string
from django.utils import translation
from django.utils.html import format_html
from django.utils.translation import gettext as _

from jobs.engine.kinds import Pause
from jobs.engine.row import Status
from jobs.engine.watching import Frame
from jobs.models import ImportJob

PAGE = "jobs/import_progress.html"
PLACES = 1000
"""Whoever waits behind so many others is told no place."""


def with_places(jobs: Collection[ImportJob]) -> None:
    """Set `place` and `paused` on those that wait and are due, in two queries at most."""
    waiting = [job for job in jobs if job.status == Status.PENDING and job.due]
    if waiting:
        paused = Pause.objects.filter(kind=ImportJob.kind).exists()
        order = ImportJob.objects.ready().values_list("pk", flat=True)[:PLACES]
        places = {pk: place for place, pk in enumerate(order, 1)}
        for job in waiting:
            job.place, job.paused = places.get(job.pk), paused


class ImportFeed:
    """Imports as their pages show them, in one language."""

    using = DEFAULT_DB_ALIAS

    def __init__(self, *, language: str) -> None:
        self.language = language

    def read(self, ids: Collection[uuid.UUID]) -> Mapping[uuid.UUID, ImportJob]:
        rows = ImportJob.objects.select_related("user", "repository__owner").in_bulk(list(ids))
        with_places(rows.values())
        return rows

    def fingerprint(self, job: ImportJob) -> object:
        return (
            job.status,
            job.attempts,
            job.run_at,
            job.due,
            job.place,
            job.paused,
            job.progress_pct,
            job.progress_step,
            job.progress_done,
            job.received_bytes,
            job.error_message,
            len(job.log),
            job.cancel_requested_at,
            job.repository_id,
        )

    def frames(self, before: ImportJob | None, job: ImportJob | None) -> list[Frame]:
        # The thread that reads for all pages speaks the language of none.
        with translation.override(self.language):
            return self._frames(before, job)

    def _frames(self, before: ImportJob | None, job: ImportJob | None) -> list[Frame]:
        if job is None:
            return [("done", format_html("<p>{}</p>", _("Job not found.")))]
        frames: list[Frame] = [
            (
                "done" if job.is_over else "progress",
                render_to_string(f"{PAGE}#progress", {"job": job}),
            )
        ]
        if before is None or spoken(before) != spoken(job):
            # The live region is read aloud, so it changes rarely, and before the stream ends.
            frames.insert(0, ("status", render_to_string(f"{PAGE}#status", {"job": job})))
        return frames


def spoken(job: ImportJob) -> object:
    """What a screen reader is told of: changes of status and each tenth percent."""
    return job.status, job.progress_pct // 10, job.cancel_requested_at is None


@cache
def feed_in(language: str) -> ImportFeed:
    """The one feed of a language, which all its pages share."""
    return ImportFeed(language=language)
