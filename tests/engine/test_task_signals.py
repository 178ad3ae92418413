"""The signals of django.tasks: sent at each step, and once at the end."""

import dataclasses
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.tasks import TaskResultStatus
from django.tasks.signals import task_enqueued, task_finished, task_started
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.engine.backend import JobsBackend
from jobs.engine.models import TaskJob
from tests.engine.task_rows import claim, refreshed, row
from tests.kinds import tasks
from tests.workers import age_lease, make_due, run_due

BACKEND = "jobs.engine.backend.JobsBackend"


@pytest.fixture
def heard() -> Iterator[list[tuple[str, str, str]]]:
    """(signal, id, status) of each signal, in order."""
    heard: list[tuple[str, str, str]] = []
    receivers = []
    for name, signal in [
        ("enqueued", task_enqueued),
        ("started", task_started),
        ("finished", task_finished),
    ]:

        def receive(*, sender: type, task_result: Any, name: str = name, **_more: Any) -> None:
            assert sender is JobsBackend
            heard.append((name, task_result.id, str(task_result.status)))

        signal.connect(receive)
        receivers.append((signal, receive))
    yield heard
    for signal, receive in receivers:
        signal.disconnect(receive)


@pytest.mark.django_db(transaction=True)
def test_signals_tell_of_each_step_and_once_of_the_end(heard: list[Any]) -> None:
    result = tasks.fail_until.enqueue(2)
    run_due(TaskJob)
    make_due(TaskJob)
    run_due(TaskJob)
    assert heard == [
        ("enqueued", result.id, "READY"),
        ("started", result.id, "RUNNING"),
        ("started", result.id, "RUNNING"),
        ("finished", result.id, "SUCCESSFUL"),
    ]


@pytest.mark.django_db(transaction=True)
def test_the_end_is_told_however_it_came(heard: list[Any]) -> None:
    failed = tasks.fail_for_good.enqueue()
    atomic = tasks.write_and_return.enqueue("x")
    valued, valueless = tasks.add.enqueue(1), tasks.noop.enqueue()
    cancelled = tasks.noop.using(run_after=timezone.now() + timedelta(hours=1)).enqueue()
    cancelled.job.cancel()
    run_due(TaskJob)
    lost = tasks.noop.enqueue()
    TaskJob.objects.filter(pk=lost.id).update(max_attempts=1)
    age_lease(claim())
    TaskJob.objects.rescue()
    ends = {pk: status for signal, pk, status in heard if signal == "finished"}
    assert ends == {
        failed.id: "FAILED",
        atomic.id: "SUCCESSFUL",
        valued.id: "SUCCESSFUL",
        valueless.id: "SUCCESSFUL",
        cancelled.id: "FAILED",
        lost.id: "FAILED",
    }
    assert len([signal for signal, _pk, _status in heard if signal == "finished"]) == 6


@pytest.mark.django_db(transaction=True)
def test_the_end_is_told_with_what_the_row_then_says() -> None:
    heard: list[Any] = []

    def receive(*, task_result: Any, **_more: Any) -> None:
        # It is committed by now, and what is told is what another process reads.
        heard.append((task_result, task_result.task.get_result(task_result.id)))

    task_finished.connect(receive)
    try:
        tasks.add.enqueue(1, 1)
        tasks.fail_for_good.enqueue()
        tasks.noop.enqueue()
        run_due(TaskJob)
    finally:
        task_finished.disconnect(receive)
    assert len(heard) == 3
    for told, read in heard:
        assert dataclasses.replace(told, finished_at=None) == dataclasses.replace(
            read, finished_at=None
        )
        assert (told.status, told._return_value) == (read.status, read._return_value)
        assert abs(told.finished_at - read.finished_at) < timedelta(seconds=5)


@pytest.mark.django_db(transaction=True)
def test_a_receiver_that_raises_does_no_harm(heard: list[Any]) -> None:
    def receive(**_more: Any) -> None:
        raise RuntimeError("a fault of the project's own")

    signals = (task_enqueued, task_started, task_finished)
    for signal in signals:
        signal.connect(receive)
    try:
        result = tasks.noop.enqueue()
        assert run_due(TaskJob) == 0
    finally:
        for signal in signals:
            signal.disconnect(receive)
    assert refreshed(result).status == TaskResultStatus.SUCCESSFUL
    assert [signal for signal, _pk, _status in heard] == ["enqueued", "started", "finished"]


@pytest.mark.django_db(transaction=True)
def test_an_end_that_was_rolled_back_is_not_told(heard: list[Any]) -> None:
    tasks.noop.enqueue()
    with pytest.raises(KeyError), transaction.atomic():
        claim().complete(None)
        raise KeyError
    assert [signal for signal, _pk, _status in heard] == ["enqueued"]


@pytest.mark.django_db(transaction=True)
def test_tasks_without_a_value_are_completed_together() -> None:
    assert not row(tasks.noop.enqueue()).has_follow_up(None)
    assert row(tasks.noop.enqueue()).has_follow_up(0)
    jobs = TaskJob.objects.claim(9, worker="w", lease_seconds=30)
    with CaptureQueriesContext(connection) as queries:
        TaskJob.objects.complete_all(jobs)
    asked = [q["sql"] for q in queries if q["sql"].startswith(("UPDATE", "SELECT"))]
    assert len([sql for sql in asked if "pg_notify" not in sql]) == 1
