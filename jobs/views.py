"""Pages about jobs. They insert rows and read them; the work happens elsewhere."""

import uuid
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import (
    require_GET,
    require_http_methods,
    require_POST,
    require_safe,
)

from jobs.engine import live
from jobs.engine.lifecycle import JobQuerySet, Refused
from jobs.forms import ImportForm
from jobs.import_feed import feed, with_places
from jobs.models import ImportJob

JOBS_PER_PAGE = 30


def visible_to(user: Any) -> JobQuerySet[ImportJob]:
    """The imports that a person may see: their own, and all for a superuser."""
    return ImportJob.objects.all() if user.is_superuser else ImportJob.objects.filter(user=user)


@require_http_methods(["GET", "HEAD", "POST"])
def start_import(request: HttpRequest) -> HttpResponse:
    """The form; a valid one makes a job and leads to its page."""
    if request.method != "POST":
        asked = {"source_url": request.GET.get("source_url", "")}
        return render(
            request, "jobs/import_form.html", {"form": ImportForm(user=request.user, initial=asked)}
        )
    form = ImportForm(request.POST, user=request.user)
    job = form.enqueue() if form.is_valid() else None
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
    return live.stream(request, feed, pk)


@require_POST
def cancel_import(request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
    job = get_object_or_404(visible_to(request.user), pk=pk)
    try:
        job.cancel()
    except Refused as refusal:
        messages.info(request, str(refusal))
    return redirect("import_progress", pk)


@require_POST
def retry_import(request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
    job = get_object_or_404(visible_to(request.user), pk=pk)
    try:
        job.requeue()
    except Refused as refusal:
        messages.error(request, str(refusal))
    return redirect("import_progress", pk)


@require_safe
def job_list(request: HttpRequest) -> HttpResponse:
    """The asking person's jobs, newest first."""
    jobs = ImportJob.objects.filter(user=request.user.pk).select_related("user").order_by("-id")
    page = Paginator(jobs, JOBS_PER_PAGE).get_page(request.GET.get("page"))
    return render(request, "jobs/job_list.html", {"page": page})
