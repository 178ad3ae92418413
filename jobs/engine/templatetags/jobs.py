"""`{% load jobs %}{% job_progress result %}`: a live progress bar on any page of any project."""

import uuid
from typing import Any

from django import template
from django.core.exceptions import SynchronousOnlyOperation
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.urls import NoReverseMatch, reverse
from django.utils.csp import nonce_attr
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from jobs.engine import bar
from jobs.engine.lifecycle import Job
from jobs.engine.models import TaskJob
from jobs.engine.row import Status

register = template.Library()

ASSETS = "jobs.engine.bar assets"
STATUSES = {
    "READY": Status.PENDING,
    "RUNNING": Status.RUNNING,
    "SUCCESSFUL": Status.COMPLETED,
    "FAILED": Status.FAILED,
}


@register.simple_tag(takes_context=True)
def job_progress(context: template.Context, given: Any, *, label: str | None = None) -> SafeString:
    """The bar of a job of any kind, or of the result of a task; live where its addresses are.

    `label`, plain text, says what is being done; without it the bar is named for its kind. A job is shown as it
    was read; for a result one query reads its job. Raises TypeError for anything else, and
    SynchronousOnlyOperation in a coroutine, where nothing may be read.
    """
    try:
        kind, pk, job = job_of(given)
    except SynchronousOnlyOperation as error:
        raise SynchronousOnlyOperation(
            "job_progress reads from the database, which a coroutine may not: in an async view "
            "write `await sync_to_async(render)(request, …)`."
        ) from error
    # Joined, because a label that stands in the template as it is would count as safe HTML.
    label = bar.label_of(kind) if label is None else "".join([str(label)])
    addresses = addresses_of(kind, pk) if pk and not job.is_over else {}
    shown = {"state": bar.state_of(job, label=label), "label": label, "job": job, **addresses}
    html = render_to_string(bar.TEMPLATE, shown).strip()
    return mark_safe(assets_once(context) + html)  # noqa: S308 - templates made both


@register.simple_tag(takes_context=True)
def job_progress_assets(context: template.Context) -> SafeString:
    """Script and style of the bars, for pages that want them in their head."""
    return assets_once(context)


def assets_once(context: template.Context) -> SafeString:
    """Script and style at the first call for a page, nothing after it."""
    # The bottom of these dicts is one for the whole page, through includes, blocks and loops.
    page: dict[Any, Any] = context.render_context.dicts[0]
    if ASSETS in page:
        return SafeString()
    page[ASSETS] = True
    nonce = format_html(" {}", nonce_attr(context)) if context.get("csp_nonce") is not None else ""
    return format_html(
        '<link rel="stylesheet" href="{}"{}><script type="module" src="{}"{}></script>\n',
        static("jobs_engine/progress.css"),
        nonce,
        static("jobs_engine/progress.js"),
        nonce,
    )


def job_of(given: Any) -> tuple[type[Job], uuid.UUID | None, Any]:
    """Kind, id and row of what was given; an object like a row, without an id, where there is none."""
    if isinstance(given, Job):
        bar.note_pause(type(given), [given])
        return type(given), given.pk, given
    status = str(getattr(given, "status", ""))
    if status not in STATUSES or not hasattr(given, "id"):
        raise TypeError(f"job_progress shows a job or the result of a task, not {given!r:.200}.")
    pk = _uuid(given.id)
    job = _task_job(pk) if pk else None
    # Another backend's result has no row, and neither has a job before its transaction commits.
    return TaskJob, pk, job or _like_a_row(STATUSES[status])


def _uuid(text: Any) -> uuid.UUID | None:
    try:
        return uuid.UUID(str(text))
    except ValueError:
        return None


def _task_job(pk: uuid.UUID) -> Job | None:
    return bar.BarFeed(TaskJob, language="").read([pk]).get(pk)


def _like_a_row(status: Status) -> Job:
    """For showing only; it is never saved."""
    return TaskJob(status=status, progress_pct=100 if status == Status.COMPLETED else 0)


def addresses_of(kind: type[Job], pk: uuid.UUID) -> dict[str, str]:
    """Where the bar's script asks; nothing when the project has not included `jobs.engine.urls`."""
    token = bar.token_of(kind, pk)
    try:
        return {
            f"{name}_url": reverse(f"jobs_engine:progress_{name}", args=[token])
            for name in ("state", "stream")
        }
    except NoReverseMatch:
        return {}
