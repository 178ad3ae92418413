"""One page with the bars of the probes that its address names, as in `/?job=…&job=…`."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import include, path

from tests.kinds.models import Probe


def page(request: HttpRequest) -> HttpResponse:
    probes = Probe.objects.in_bulk(request.GET.getlist("job"))
    jobs = [probes[pk] for pk in sorted(probes)]
    return render(request, "bars/page.html", {"jobs": jobs})


urlpatterns = [
    path("", page),
    path("jobs/", include("jobs.engine.urls")),
]
