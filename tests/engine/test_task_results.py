"""What django.tasks is told of a task: its status, value, errors and workers."""

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.tasks import TaskResultStatus, default_task_backend
from django.tasks.exceptions import (
    TaskResultDoesNotExist,
    TaskResultMismatch,
)
from django.utils import timezone

from jobs.engine.models import TaskJob
from jobs.engine.retry import Cancelled, Released, WorkerLost
from jobs.engine.testing import run_pending
from tests.engine.task_rows import claim, refreshed, row
from tests.kinds import tasks
from tests.kinds.models import Effect
from tests.waiting import wait_for
from tests.workers import age_lease, has_status, run_due

BACKEND = "jobs.engine.backend.JobsBackend"


@pytest.mark.django_db(transaction=True)
def test_a_completed_task_tells_its_value_and_its_times() -> None:
    result = tasks.add.enqueue(1, b=2)
    run_due(TaskJob)

    assert not result.is_finished
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert (result.return_value, result.attempts, result.is_finished) == (3, 1, True)
    assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
    assert result.worker_ids == [row(result).worker]
    assert result.errors == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "cls", "words"),
    [("fail", ValueError, "no luck"), ("leave", SystemExit, "gone")],
)
def test_each_failed_attempt_is_an_error_with_its_traceback(
    name: str, cls: type[BaseException], words: str
) -> None:
    result = getattr(tasks, name).enqueue()
    run_pending(TaskJob)
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.READY, 1)
    assert [error.exception_class for error in result.errors] == [cls]

    run_pending(TaskJob, future=True)
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 3)
    assert [error.exception_class for error in result.errors] == [cls] * 3
    assert all(e.traceback.endswith(f"{cls.__name__}: {words}\n") for e in result.errors)
    assert len(result.worker_ids) == 3
    assert result.started_at <= result.last_attempted_at <= result.finished_at
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


@pytest.mark.django_db
def test_a_requeued_task_begins_anew() -> None:
    result = tasks.fail_for_good.enqueue()
    run_pending(TaskJob)
    assert len(refreshed(result).errors) == 1
    result.job.requeue()

    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.READY, 0)
    assert (result.errors, result.worker_ids, result.started_at) == ([], [], None)

    job = claim()
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.RUNNING, 1)
    assert (result.errors, result.worker_ids) == ([], ["w"])

    job.complete(None)
    result.refresh()
    assert (result.errors, result.worker_ids) == ([], ["w"])
    assert len(row(result).attempt_log) == 1


@pytest.mark.django_db
def test_attempts_that_are_handed_back_are_neither_spent_nor_errors() -> None:
    result = tasks.snooze_once.enqueue()
    run_pending(TaskJob)
    result.refresh()
    assert (result.status, result.attempts, result.errors) == (TaskResultStatus.READY, 0, [])
    job = row(result)
    assert job.attempt_log[-1]["outcome"] == "snoozed"

    run_pending(TaskJob, future=True)
    result.refresh()
    assert (result.return_value, result.attempts, result.errors) == (1, 1, [])

    other = tasks.noop.enqueue()
    job = claim()
    job.release(
        job.log_entry("released", ended_at=None, error_class=f"{Released.__module__}.Released")
    )
    other.refresh()
    assert (other.attempts, other.errors, other.worker_ids) == (0, [], [])


@pytest.mark.django_db
def test_a_cancelled_task_has_failed_by_cancelled() -> None:
    waiting = tasks.noop.enqueue()
    waiting.job.cancel()
    waiting.refresh()
    assert (waiting.status, waiting.attempts) == (TaskResultStatus.FAILED, 0)
    assert [error.exception_class for error in waiting.errors] == [Cancelled]
    assert waiting.finished_at is not None

    tried = tasks.fail.enqueue()
    run_pending(TaskJob)
    tried.job.cancel()
    tried.refresh()
    assert tried.attempts == len(tried.worker_ids) == 1
    assert [error.exception_class for error in tried.errors] == [ValueError, Cancelled]


@pytest.mark.django_db(transaction=True)
def test_a_task_that_is_cancelled_while_it_runs_has_failed_by_cancelled(
    worker: Callable[..., Any],
) -> None:
    result = tasks.wait_politely.enqueue()
    worker(TaskJob)
    wait_for(Effect.objects.exists)
    assert refreshed(result).status == TaskResultStatus.RUNNING
    result.job.cancel()
    wait_for(has_status(row(result), "cancelled"))
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 1)
    assert [error.exception_class for error in result.errors] == [Cancelled]


@pytest.mark.django_db
def test_a_lost_worker_is_an_error_of_its_own_class() -> None:
    result = tasks.noop.enqueue()
    age_lease(claim())
    TaskJob.objects.rescue()
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.READY, 1)
    assert [error.exception_class for error in result.errors] == [WorkerLost]
    assert "The worker died" in result.errors[0].traceback

    row(result).cancel()
    assert [e.exception_class for e in refreshed(result).errors] == [WorkerLost, Cancelled]


@pytest.mark.django_db(transaction=True)
def test_a_task_that_kills_its_worker_runs_again_in_another_process(
    worker_process: Callable[..., Any],
) -> None:
    result = tasks.die.enqueue()
    first = worker_process("--kinds", "task").wait_ready()
    first.wait()
    worker_process("--kinds", "task", "--burst").wait()
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert (result.attempts, len(result.worker_ids)) == (2, 2)
    assert [error.exception_class for error in result.errors] == [WorkerLost]


@pytest.mark.django_db
@pytest.mark.parametrize("bad", ["123", "", "does-not-exist", "a" * 500, uuid.uuid4()])
def test_an_unknown_id_is_said_to_be_unknown(bad: Any) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        tasks.noop.get_result(bad)


@pytest.mark.django_db
def test_a_result_of_another_task_is_a_mismatch() -> None:
    result = tasks.noop.enqueue()
    with pytest.raises(TaskResultMismatch):
        tasks.add.get_result(result.id)


@pytest.mark.django_db
def test_a_deleted_row_has_no_result_any_more() -> None:
    result = tasks.noop.enqueue()
    row(result).delete()
    with pytest.raises(TaskResultDoesNotExist):
        result.refresh()
    with pytest.raises(TaskResultDoesNotExist):
        _ = result.job


@pytest.mark.django_db
def test_a_renamed_task_fails_by_its_name_and_runs_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = tasks.renamed.enqueue()
    with monkeypatch.context() as patch:
        patch.delattr(tasks, "renamed")
        run_pending(TaskJob)
        job = row(result)
        assert (job.status, job.attempts) == ("failed", 1)
        assert job.error_message == "Unknown task tests.kinds.tasks.renamed."
        with pytest.raises(TaskResultDoesNotExist, match=r"tests\.kinds\.tasks\.renamed"):
            default_task_backend.get_result(result.id)
    job.requeue()
    run_pending(TaskJob)
    assert refreshed(result).return_value == "found"


@pytest.mark.django_db
def test_a_plain_function_runs_by_its_path_but_has_no_task_result() -> None:
    jobs = [
        TaskJob.objects.enqueue(task=f"tests.kinds.tasks.{name}", payload={"args": [4]})
        for name in ("plain", "plain_async")
    ]
    run_pending(TaskJob)
    assert [TaskJob.objects.get(pk=job.pk).result for job in jobs] == [-4, -4]
    with pytest.raises(TaskResultDoesNotExist, match="is a function, not a task"):
        default_task_backend.get_result(str(jobs[0].pk))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("return_set", "The result is a set, which JSON does not have."),
        ("return_much", "The result takes 2000002 bytes as JSON; 1048576 are allowed."),
    ],
)
def test_a_result_that_cannot_be_stored_fails_the_task_at_once(name: str, words: str) -> None:
    result = getattr(tasks, name).enqueue()
    run_pending(TaskJob)
    job = row(result)
    assert (job.status, job.attempts, job.error_message) == ("failed", 1, words)


@pytest.mark.django_db
def test_a_result_becomes_json_as_the_standard_says() -> None:
    result = tasks.return_bytes_and_tuple.enqueue()
    run_pending(TaskJob)
    assert refreshed(result).return_value == ["bytes", ["a", 1]]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("what", "status", "effects"),
    [("done", "completed", 1), ("fail", "failed", 0), ("set", "failed", 0)],
)
def test_effects_of_an_atomic_task_are_there_exactly_when_it_completed(
    what: str, status: str, effects: int
) -> None:
    result = tasks.write_and_return.enqueue(what)
    run_due(TaskJob)
    assert row(result).status == status
    assert Effect.objects.count() == effects


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "args", "status", "message"),
    [
        ("fail_plainly", [], "pending", "the shop is closed"),
        ("fail_for_good", [], "failed", "it will never work"),
        ("come_back", [500], "pending", "Asked to come back in 500 seconds."),
    ],
)
def test_a_task_has_a_say_in_what_follows(
    name: str, args: list[Any], status: str, message: str
) -> None:
    result = getattr(tasks, name).enqueue(*args)
    run_pending(TaskJob)
    job = row(result)
    assert (job.status, job.error_message) == (status, message)


@pytest.mark.django_db(transaction=True)
def test_the_context_reports_logs_and_starts_programs() -> None:
    result = tasks.tell_all.enqueue()
    run_due(TaskJob)
    job = row(result)
    assert (job.result, job.log) == ("RUNNING 1", "a line\n")
    assert (job.progress_step, job.progress_done, job.progress_total) == ("halfway", 1, 2)


@pytest.mark.django_db
def test_the_context_counts_attempts_as_the_row_does() -> None:
    result = tasks.fail_until.enqueue(3)
    run_pending(TaskJob, future=True)
    result.refresh()
    assert (result.return_value, result.attempts, row(result).attempts) == (3, 3, 3)
    assert len(result.errors) == 2


@pytest.mark.django_db(transaction=True)
def test_a_coroutine_may_wait_for_the_end(worker: Callable[..., Any]) -> None:
    worker(TaskJob)

    @async_to_sync
    async def use() -> Any:
        result = await tasks.add.aenqueue(1, b=2)
        assert await result.wait(20) is result
        late = await tasks.noop.using(run_after=timezone.now() + timedelta(hours=1)).aenqueue()
        with pytest.raises(TimeoutError):
            await late.wait(0.5)
        await TaskJob.objects.filter(pk=late.id).adelete()
        with pytest.raises(TaskResultDoesNotExist):
            await late.wait(20)
        return result

    result = use()
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", 3, 1)
    assert result == tasks.add.get_result(result.id)
