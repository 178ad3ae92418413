"""The pytest fixtures that other projects use, used as they do."""

from collections.abc import Callable
from typing import Any

from django.db import transaction

from jobs.engine.fixtures import inline_jobs, run_pending
from tests.kinds.models import Effect, Probe

__all__ = ["inline_jobs", "run_pending"]


def test_a_fixture_runs_what_is_pending(run_pending: Callable[..., Any]) -> None:
    job = Probe.objects.enqueue()
    assert [ended.pk for ended in run_pending(Probe)] == [job.pk]
    assert Effect.objects.count() == 1


def test_a_fixture_runs_each_job_when_its_transaction_commits(inline_jobs: None) -> None:
    with transaction.atomic():
        Probe.objects.enqueue()
        assert not Effect.objects.exists()
    assert Effect.objects.count() == 1
