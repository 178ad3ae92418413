"""Old jobs of low priority run in the end: their rank rises, their priority stays as given."""

from datetime import timedelta

from django.db import transaction
from django.db.models import Case, F, Value, When
from django.db.models.functions import Now

from jobs.engine.lifecycle import Job

# (waiting for so many seconds, at least so much above the priority). A step is written once for
# each row, and the last one is above the span of priorities that people use, -100 to 100.
STEPS = ((60, 1), (300, 5), (900, 20), (3600, 100), (7200, 200))
BATCH = 1000
HIGHEST = 99
"""What has the highest priority, 100, is never passed by what is only old."""


def aged(step: int) -> Case:
    """The rank of a row that stands so much above its priority."""
    risen = F("priority") + step
    return Case(When(priority__gt=HIGHEST - step, then=Value(HIGHEST)), default=risen)


def raise_ranks(kind: type[Job]) -> int:
    """Raise the oldest due rows that stand below others; returns how many, at most a batch a step.

    A backlog in which all have the same rank is in order already, and nothing of it is written.
    """
    ready = kind.objects.ready()
    top = ready.values_list("rank", flat=True).first()
    lowest = ready.order_by("rank", "-run_at").values_list("rank", flat=True).first()
    if top is None or lowest == top:
        return 0
    raised = 0
    for seconds, step in reversed(STEPS):
        waiting = ready.filter(run_at__lt=Now() - timedelta(seconds=seconds), rank__lt=aged(step))
        # Rows that somebody holds, who may be frozen, are not waited for.
        with transaction.atomic(using=ready.db):
            free = waiting.filter(rank__lt=top).order_by("run_at")
            free = free.select_for_update(skip_locked=True)
            ids = list(free.values_list("pk", flat=True)[:BATCH])
            raised += ready.order_by().filter(pk__in=ids).update(rank=aged(step))
    return raised
