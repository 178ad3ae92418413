"""Pages about jobs. They insert rows and read them; the work happens elsewhere."""

import uuid
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.http import urlencode
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from django.views.decorators.http import (
    require_GET,
    require_http_methods,
    require_safe,
)

from jobs.engine import live
from jobs.engine.lifecycle import JobQuerySet, Refused
from jobs.forms import ImportForm, without_secrets
from jobs.import_feed import feed_in, with_places
from jobs.models import ImportJob

JOBS_PER_PAGE = 30


def visible_to(user: Any) -> JobQuerySet[ImportJob]:
    """The imports that a person may see: their own, and all for a superuser."""
    return ImportJob.objects.all() if user.is_superuser else ImportJob.objects.filter(user=user)


@login_not_required
@require_http_methods(["GET", "HEAD", "POST"])
def start_import(request: HttpRequest) -> HttpResponse:
    """The form; a valid one makes a job and leads to its page."""
    if not request.user.is_authenticated:
        # Whose session ended meanwhile finds the address in the form after signing in.
        typed = {"source_url": without_secrets(request.POST.get("source_url", ""))}
        query = f"?{urlencode(typed)}" if typed["source_url"] else ""
        return redirect_to_login(request.path + query)
    if request.method != "POST":
        asked = {"source_url": request.GET.get("source_url", "")}
        return render(
            request, "jobs/import_form.html", {"form": ImportForm(user=request.user, initial=asked)}
        )
    form = ImportForm(request.POST, user=request.user)
    job = form.sent_before() or (form.enqueue() if form.is_valid() else None)
    if job is None:
        return render(request, "jobs/import_form.html", {"form": form}, status=422)
    return redirect("import_progress", job.pk)


@require_safe
def import_progress(request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
    imports = visible_to(request.user).select_related("user", "repository__owner")
    job = get_object_or_404(imports, pk=pk)
    with_places([job])
    return render(request, "jobs/import_progress.html", {"job": job})


@require_GET
def import_stream(request: HttpRequest, pk: uuid.UUID) -> StreamingHttpResponse:
    """The job's state as Server-Sent Events until it is over."""
    get_object_or_404(visible_to(request.user).only("pk"), pk=pk)
    return live.stream(request, feed_in(get_language() or settings.LANGUAGE_CODE), pk)


@require_http_methods(["GET", "HEAD", "POST"])
def cancel_import(request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
    return _apply(request, pk, "cancel", messages.INFO)


@require_http_methods(["GET", "HEAD", "POST"])
def retry_import(request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
    return _apply(request, pk, "requeue", messages.ERROR)


def _apply(request: HttpRequest, pk: uuid.UUID, verb: str, level: int) -> HttpResponse:
    """Do what the pressed button says, and lead back to the job's page."""
    job = get_object_or_404(visible_to(request.user), pk=pk)
    if request.method != "POST":
        # As after signing in again: what was pressed before is not done by following a link.
        messages.info(request, _("Nothing has been done yet: press the button again."))
        return redirect("import_progress", pk)
    try:
        getattr(job, verb)()
    except Refused as refusal:
        messages.add_message(request, level, str(refusal))
    return redirect("import_progress", pk)


@require_safe
def job_list(request: HttpRequest) -> HttpResponse:
    """The asking person's jobs, newest first."""
    jobs = ImportJob.objects.filter(user=request.user.pk).select_related("user").order_by("-id")
    page = Paginator(jobs, JOBS_PER_PAGE).get_page(request.GET.get("page"))
    return render(request, "jobs/job_list.html", {"page": page})
