"""A report that takes a while, because it looks at each sale of a year."""

from django.tasks import task

from jobs.engine.tasks import JobContext, job_options
from sales_report.models import Sale

SALES_BETWEEN_REPORTS = 500


@task(takes_context=True)
@job_options(unique="{year}", max_running_seconds=600)
def report_of(context: JobContext, year: int) -> list[list[int]]:
    """[month, sales, cents] for each month of the year. Reads only, so it may run twice."""
    sales = Sale.objects.filter(day__year=year)
    total = sales.count()
    months = [[month, 0, 0] for month in range(1, 13)]
    rows = sales.values_list("day__month", "cents").iterator(chunk_size=2000)
    for done, (month, cents) in enumerate(rows):
        if done % SALES_BETWEEN_REPORTS == 0:
            context.report(done=done, total=total, step="adding up")
        months[month - 1][1] += 1
        months[month - 1][2] += cents
    return months
