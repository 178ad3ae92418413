"""A button, and a page that shows first how far the report is, then the report."""

import uuid

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.tasks.exceptions import TaskResultDoesNotExist
from django.views.decorators.http import require_GET, require_http_methods

from sales_report.forms import YearForm
from sales_report.tasks import report_of


@require_http_methods(["GET", "POST"])
def index(request: HttpRequest) -> HttpResponse:
    form = YearForm(request.POST or None)
    if form.is_valid():
        # While a report of that year is under way, `unique` makes this one the same.
        result = report_of.enqueue(year=form.cleaned_data["year"])
        return redirect("report", result.id)
    return render(request, "sales_report/index.html", {"form": form})


@require_GET
def report(request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
    try:
        result = report_of.get_result(str(pk))
    except TaskResultDoesNotExist:
        raise Http404("There is no such report (any more).") from None
    return render(request, "sales_report/report.html", {"result": result})
