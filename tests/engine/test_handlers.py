"""What a handler may do: keep lines, be one with its completion, be tested without a worker."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from jobs.engine.models import TaskJob
from jobs.engine.progress import FULL, LOG_CHARACTERS
from jobs.engine.row import uuid7
from jobs.engine.testing import assert_enqueued, assert_not_enqueued, inline, run_pending
from tests.engine.task_rows import row
from tests.kinds import tasks
from tests.kinds.models import Chain, Effect, Ledger, Probe
from tests.kinds.scripted import Scripted, for_each_kind
from tests.workers import run_due


def double(number: int, *, plus: int = 0) -> int:
    return number * 2 + plus


def leave_and_fail() -> None:
    Effect.objects.create(job=uuid7(), attempt=1)
    raise ValueError("after the effect")


def not_json() -> object:
    return {1, 2}


@pytest.mark.django_db(transaction=True)
def test_lines_are_kept_on_the_job_cleaned_and_over_attempts() -> None:
    job = Probe.objects.enqueue(script="log", argument="text")
    run_due()
    assert Probe.objects.get(pk=job.pk).log == "first line\ndirty   text\n"

    Probe.objects.filter(pk=job.pk).update(status="failed")
    Probe.objects.get(pk=job.pk).requeue()
    run_due()
    assert Probe.objects.get(pk=job.pk).log == "first line\ndirty   text\n" * 2


@pytest.mark.django_db(transaction=True)
def test_a_log_has_a_size_and_says_when_it_is_full() -> None:
    job = Probe.objects.enqueue(script="log_too_much")
    run_due()
    row = Probe.objects.get(pk=job.pk)
    assert row.status == "completed"
    assert LOG_CHARACTERS - 2000 < len(row.log) <= LOG_CHARACTERS + 100
    assert row.log.rstrip().endswith(FULL)
    assert all(len(line) <= 1000 for line in row.log.splitlines())


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("argument", "status", "effects"),
    [("", "completed", 1), ("fail", "failed", 0), ("lose", "running", 0)],
)
def test_effects_of_an_atomic_job_are_there_exactly_when_it_completed(
    argument: str, status: str, effects: int
) -> None:
    job = Ledger.objects.enqueue(argument=argument, max_attempts=1)
    run_pending(Ledger)
    row = Ledger.objects.get(pk=job.pk)
    assert row.status == status
    assert Effect.objects.count() == effects


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("argument", ["", "fail"])
def test_the_last_words_of_an_atomic_job_are_kept_however_it_ends(
    argument: str,
) -> None:
    job = Ledger.objects.enqueue(argument=argument, max_attempts=1)
    run_due(Ledger)
    row = Ledger.objects.get(pk=job.pk)
    assert (row.progress_step, row.log) == ("almost done", "the last words\n")


@pytest.mark.django_db
def test_pending_jobs_run_in_the_test_itself() -> None:
    Chain.objects.enqueue(links=2)
    Probe.objects.enqueue(script="fail_once")
    later = Probe.objects.enqueue(run_at=timezone.now() + timezone.timedelta(hours=1))

    ended = run_pending()

    assert sorted(job.status for job in ended) == ["completed"] * 3 + ["pending"]
    assert Probe.objects.get(pk=later.pk).status == "pending"
    assert {job.status for job in run_pending(future=True)} == {"completed"}


@pytest.mark.django_db
def test_what_is_enqueued_can_be_asserted() -> None:
    job = Probe.objects.enqueue(argument="here")
    assert assert_enqueued(Probe, argument="here") == [job]
    assert_enqueued(Probe, count=1)
    assert_not_enqueued(Probe, argument="there")
    with pytest.raises(AssertionError, match=r"'argument': 'there'.*'argument': 'here'"):
        assert_enqueued(Probe, argument="there")
    with pytest.raises(AssertionError, match="2 pending"):
        assert_enqueued(Probe, count=2)


@pytest.mark.django_db(transaction=True)
def test_inline_jobs_run_when_their_transaction_commits() -> None:
    with inline():
        with transaction.atomic():
            job = Probe.objects.enqueue()
            assert not Effect.objects.exists()
        assert Probe.objects.get(pk=job.pk).status == "completed"
    Probe.objects.enqueue()
    assert Effect.objects.count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("task", "payload", "status", "result", "message"),
    [
        ("double", {"args": [4], "kwargs": {"plus": 1}}, "completed", 9, ""),
        (
            "not_json",
            {},
            "failed",
            None,
            "The result is a set, which JSON does not have.",
        ),
        ("renamed", {}, "failed", None, "Unknown task tests.engine.test_handlers.renamed."),
        (
            "TaskJob",
            {},
            "failed",
            None,
            "tests.engine.test_handlers.TaskJob is not a function that can be called as a task.",
        ),
    ],
)
def test_a_function_runs_by_its_dotted_path(
    task: str, payload: Any, status: str, result: Any, message: str
) -> None:
    path = f"tests.engine.test_handlers.{task}"
    job = TaskJob.objects.enqueue(task=path, payload=payload, max_attempts=1)
    run_pending(TaskJob)
    row = TaskJob.objects.get(pk=job.pk)
    assert (row.status, row.result, row.error_message) == (status, result, message)


def test_a_kind_may_have_a_back_off_of_its_own(monkeypatch: pytest.MonkeyPatch, db: None) -> None:
    monkeypatch.setattr(Probe, "backoff", lambda self, attempt: 1000 * attempt)
    job = Probe.objects.enqueue(script="fail")
    run_pending(Probe)
    row = Probe.objects.get(pk=job.pk)
    assert 900 < (row.run_at - timezone.now()).total_seconds() <= 1000


@pytest.mark.django_db
def test_follow_up_jobs_are_enqueued_by_the_completing_transaction(
    django_capture_on_commit_callbacks: Callable[..., Any],
) -> None:
    Chain.objects.enqueue(links=3)
    run_pending(Chain)
    assert_enqueued(Probe, count=3)


@pytest.mark.django_db(transaction=True)
@for_each_kind
def test_five_megabytes_of_dirt_are_stored_cleaned_and_cut(kind: Scripted) -> None:
    job = kind.enqueue("speak_dirt", max_attempts=1)

    run_due(kind.model)

    job.refresh_from_db()
    assert job.status == "failed"
    assert 2_000 < len(job.error_message) < 2_100
    (entry,) = job.attempt_log
    assert len(entry["traceback"].encode()) <= 16 * 1024
    assert 0 < len(job.progress_step) <= 200
    assert 0 < len(job.log) <= 1_001
    kept = job.error_message + job.log + job.progress_step + entry["traceback"]
    assert not {"\x00", "\x1b", "\ud800"} & set(kept)


@pytest.mark.django_db
def test_a_database_error_of_a_handler_does_not_end_the_test_that_runs_it() -> None:
    failing = tasks.break_the_database.enqueue(False)
    swallowing = tasks.break_the_database.enqueue(True)
    spoiling = tasks.spoil_the_transaction.enqueue()
    good = Probe.objects.enqueue()

    run_pending()

    job = row(failing)
    assert (job.status, job.attempts) == ("pending", 1)
    assert "nowhere" in job.error_message
    assert row(swallowing).result == "went on"
    assert row(spoiling).status == "completed"
    assert Effect.objects.get().job == good.pk


@pytest.mark.django_db
def test_what_a_handler_did_before_an_error_of_its_own_stays_as_with_a_worker() -> None:
    job = TaskJob.objects.enqueue(task="tests.engine.test_handlers.leave_and_fail")
    run_pending()
    assert TaskJob.objects.get(pk=job.pk).error_message == "ValueError: after the effect"
    assert Effect.objects.count() == 1


@pytest.mark.django_db
def test_a_job_that_puts_itself_off_for_ever_is_told_and_not_run_for_ever() -> None:
    job = tasks.snooze_for_ever.enqueue()
    once = tasks.snooze_once.enqueue()
    with pytest.raises(RuntimeError, match=f"{job.id} ran 23 times and put itself off each time"):
        run_pending(future=True)
    assert row(once).result == 1


@pytest.mark.django_db
def test_a_line_that_is_no_text_is_told_to_the_handler() -> None:
    result = tasks.log_a_number.enqueue()
    run_pending()
    assert row(result).error_message == "TypeError: line must be text, not 123."


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "changing", [tasks.change_settings_of_the_thread, tasks.change_settings_atomically]
)
def test_language_time_zone_and_precision_of_one_job_are_not_those_of_the_next(
    changing: Any,
) -> None:
    first, second = (changing.enqueue() for _ in range(2))
    run_due(TaskJob, seats={"task": 1})
    assert row(first).result == row(second).result
    assert row(second).result == tasks.settings_of_the_thread()

    # Nor those of a test that runs it.
    changing.enqueue()
    run_pending(TaskJob)
    assert row(second).result == tasks.settings_of_the_thread()
