"""The progress bar of any job on any page: what it shows, and the token that lets a page watch it."""

import uuid
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from django.conf import settings
from django.core import signing
from django.db import router
from django.template.loader import render_to_string
from django.utils import timezone, translation
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from jobs.engine.kinds import Pause
from jobs.engine.lifecycle import Job
from jobs.engine.row import Status
from jobs.engine.watching import Frame

TEMPLATE = "jobs_engine/progress.html"
SALT = "jobs.engine.bar"
VALID_FOR = timedelta(days=7)
SOON = timedelta(hours=12)
"""The time of the day says enough of a time before that."""

COLUMNS = (
    *("status", "attempts", "run_at", "due", "cancel_requested_at", "error_message"),
    *("progress_pct", "progress_step", "progress_done", "progress_total"),
)


class BadToken(Exception):
    """Nobody was given this token, or it was too long ago, or the kind is not installed any more."""


def token_of(kind: type[Job], pk: uuid.UUID) -> str:
    """Whoever has it may see how far the job is, in the language that is active now."""
    language = translation.get_language() or settings.LANGUAGE_CODE
    return signing.dumps([kind.kind, pk.hex, language], salt=SALT)


def opened(token: str) -> "tuple[BarFeed, uuid.UUID]":
    """What the token is for; raises BadToken."""
    try:
        name, pk, language = signing.loads(token, salt=SALT, max_age=VALID_FOR)
    except signing.BadSignature as error:
        raise BadToken(str(error)) from None
    kind = {kind.kind: kind for kind in Job.kinds()}.get(name)
    if kind is None:
        raise BadToken(f"There is no kind {name}.")
    return feed_of(kind, language), uuid.UUID(hex=pk)


class BarFeed:
    """The jobs of a kind as their bars show them, in one language."""

    def __init__(self, kind: type[Job], *, language: str) -> None:
        self.kind = kind
        self.language = language

    @property
    def using(self) -> str:
        # What was written a moment ago need not have reached a replica.
        return router.db_for_write(self.kind)

    def read(self, ids: Collection[uuid.UUID]) -> Mapping[uuid.UUID, Job]:
        rows: Mapping[uuid.UUID, Job] = (
            self.kind._base_manager.using(self.using).only(*COLUMNS).in_bulk(list(ids))
        )
        note_pause(self.kind, rows.values())
        return rows

    def fingerprint(self, job: Job) -> object:
        return (job.paused, *(getattr(job, name) for name in COLUMNS))

    def frames(self, before: Job | None, job: Job | None) -> list[Frame]:
        return [("over" if job is None or job.is_over else "state", self.rendered(job))]

    def rendered(self, job: Job | None) -> str:
        """The piece of the page that changes."""
        with translation.override(self.language):
            return state_of(job, label=label_of(self.kind))


@cache
def feed_of(kind: type[Job], language: str) -> BarFeed:
    return BarFeed(kind, language=language)


def note_pause(kind: type[Job], jobs: Collection[Job]) -> None:
    """Set `paused` on those that wait, in one query at most."""
    waiting = [job for job in jobs if job.status == Status.PENDING]
    if waiting:
        pauses = Pause.objects.using(router.db_for_write(Pause))
        paused = pauses.filter(kind=kind.kind).exists()
        for job in waiting:
            job.paused = paused


def label_of(kind: type[Job]) -> str:
    return str(capfirst(kind._meta.verbose_name))


def state_of(job: Any, *, label: str) -> SafeString:
    """The state as HTML, in the active language; None is a job that is gone."""
    if job is None:
        return _html("gone", {})
    until = waits_until(job)
    context = {
        "job": job,
        "label": label,
        "word": word_for(job),
        "said": said_of(job),
        "measured": job.progress_pct > 0 or job.progress_done is not None,
        "waits_until": until,
        "soon": until is not None and until - timezone.now() < SOON,
    }
    return _html("state", context)


def _html(partial: str, context: dict[str, Any]) -> SafeString:
    return mark_safe(render_to_string(f"{TEMPLATE}#{partial}", context).strip())  # noqa: S308


def word_for(job: Any) -> str:
    """One word for how the job is."""
    if not job.is_over and job.cancel_requested_at:
        return _("Stopping")
    if job.status == Status.PENDING:
        return _("Paused") if job.paused else _("Waiting")
    return str(capfirst(Status(job.status).label))


def said_of(job: Any) -> str:
    """What a screen reader is told: changes of status, and each tenth percent."""
    tens = job.progress_pct // 10 * 10
    if job.status == Status.RUNNING and tens:
        return _("%(word)s, %(percent)s%%") % {"word": word_for(job), "percent": tens}
    return word_for(job)


def waits_until(job: Any) -> datetime | None:
    """When the next attempt of a waiting job may begin; None for those that may begin now."""
    waits = job.status == Status.PENDING and not job.due and not job.paused
    return job.run_at if waits else None
