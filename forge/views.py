"""The pages that belong to no app: the first page, and the word that the server lives."""

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from jobs.models import ImportJob
from repositories.models import Repository

REPOSITORIES = 50
JOBS = 5


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """The repositories that the person may see, newest first, and their last jobs."""
    repositories = Repository.objects.visible_to(request.user).select_related("owner")
    jobs = ImportJob.objects.filter(user=request.user.pk).select_related("user").order_by("-id")
    return render(
        request,
        "home.html",
        {"repositories": repositories.order_by("-created_at")[:REPOSITORIES], "jobs": jobs[:JOBS]},
    )


@login_not_required
@require_safe
def healthz(_request: HttpRequest) -> HttpResponse:
    """The web process answers; says nothing of the database or the workers."""
    return HttpResponse("ok\n", content_type="text/plain", headers={"Cache-Control": "no-store"})
