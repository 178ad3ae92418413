"""A worker in this process: how jobs end, and what it does around them."""

import sys
import threading
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.db import transaction
from django.utils import timezone

from jobs.engine.conf import config
from jobs.engine.models import TaskJob
from jobs.engine.retry import InDoubt, RetryAfter, Snooze
from jobs.engine.worker import EXIT_RETIRED, Worker
from tests.kinds.models import Chain, Effect, Probe
from tests.kinds.scripted import TASK, Scripted, for_each_kind
from tests.waiting import wait_for
from tests.workers import has_status, make_due, run_due, status_of

pytestmark = pytest.mark.django_db(transaction=True)


def is_gone(pid: int) -> bool:
    """The process ended; whoever adopted it may still have to take note of that."""
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def log_of(job: Probe) -> list[dict[str, Any]]:
    return list(Probe.objects.values_list("attempt_log", flat=True).get(pk=job.pk))


def test_a_burst_runs_what_is_due_and_what_that_enqueues_then_ends() -> None:
    chain = Chain.objects.enqueue(links=5)
    later = Probe.objects.enqueue(run_at=timezone.now() + timezone.timedelta(hours=1))

    assert run_due() == 0

    assert status_of(chain) == "completed"
    assert Effect.objects.count() == 5
    assert status_of(later) == "pending"


@pytest.mark.parametrize(
    ("script", "argument", "message"),
    [
        ("fail", "the disk is on fire", "ValueError: the disk is on fire"),
        ("fail", "NUL \x00 and \x1b[2J and \ud800", "ValueError: NUL  and  and ?"),
        ("fail_plainly", "in plain words", "in plain words"),
        ("exit", "", "SystemExit: 3"),
        (
            "is_unknown",
            "",
            "AttributeError: module 'tests.kinds.scripts' has no attribute 'is_unknown'",
        ),
    ],
)
def test_no_broken_job_takes_the_worker_down(script: str, argument: str, message: str) -> None:
    broken = Probe.objects.enqueue(script=script, argument="", max_attempts=1)
    good = Probe.objects.enqueue()
    original = Probe.perform

    def perform(self: Probe, run: Any) -> Any:
        if self.pk == broken.pk:
            # Set here because a lone surrogate cannot be stored, but can be raised.
            self.argument = argument
        return original(self, run)

    Probe.perform = perform  # type: ignore[method-assign]
    try:
        run_due()
    finally:
        Probe.perform = original  # type: ignore[method-assign]

    assert (status_of(broken), status_of(good)) == ("failed", "completed")
    assert Probe.objects.get(pk=broken.pk).error_message == message


def test_a_failure_is_tried_again_after_five_then_twenty_five_seconds() -> None:
    job = Probe.objects.enqueue(script="fail", argument="again")
    waits = []
    for _ in range(3):
        run_due()
        row = Probe.objects.get(pk=job.pk)
        if row.status == "pending":
            ended = datetime.fromisoformat(row.attempt_log[-1]["ended_at"])
            waits.append((row.run_at - ended).total_seconds())
            make_due()

    assert row.status == "failed"
    # Ten per cent of jitter, and what it took to write the outcome.
    assert 4.5 <= waits[0] < 5.5 + 3
    assert 22.5 <= waits[1] < 27.5 + 3
    log = log_of(job)
    assert [line["number"] for line in log] == [1, 2, 3]
    assert all("in fail" in line["traceback"] and line["worker"] for line in log)
    assert {line["error_class"] for line in log} == {"builtins.ValueError"}
    assert all(line["started_at"] < line["ended_at"] for line in log)


def test_a_task_that_no_longer_exists_fails_and_the_next_one_runs(
    worker: Callable[..., Worker],
) -> None:
    gone = TaskJob.objects.enqueue(task="shop.reports.gone")
    following = TASK.enqueue()

    worker(TaskJob, seats={"task": 1})

    wait_for(has_status(following, "completed"))
    gone.refresh_from_db()
    assert (gone.status, gone.attempts) == ("failed", 1)
    assert gone.error_message == "Unknown task shop.reports.gone."


def test_permanent_fails_at_once() -> None:
    job = Probe.objects.enqueue(script="fail_for_good")
    run_due()
    row = Probe.objects.get(pk=job.pk)
    assert (row.status, row.attempts, row.error_message) == ("failed", 1, "it will never work")


def test_retry_after_spends_an_attempt_and_snooze_none() -> None:
    told = Probe.objects.enqueue(script="come_back", argument="100")
    snoozed = Probe.objects.enqueue(script="snooze", argument="100")
    run_due()
    told, snoozed = (Probe.objects.get(pk=job.pk) for job in (told, snoozed))
    assert (told.attempts, snoozed.attempts) == (1, 0)
    assert snoozed.attempt_log[0]["message"] == "not yet"
    for job in (told, snoozed):
        assert 95 < (job.run_at - timezone.now()).total_seconds() < 101


def test_failing_follow_up_work_counts_as_a_failed_attempt() -> None:
    chain = Chain.objects.enqueue(links=1, max_attempts=1)
    original = Chain.perform
    Chain.perform = lambda self, run: -1  # type: ignore[method-assign]
    try:
        run_due()
    finally:
        Chain.perform = original  # type: ignore[method-assign]
    row = Chain.objects.get(pk=chain.pk)
    assert (row.status, row.done) == ("failed", "")
    assert row.error_message == "ValueError: follow-up work failed"


@for_each_kind
def test_a_job_does_not_run_before_the_commit_that_enqueues_it(
    worker: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch, kind: Scripted
) -> None:
    running = worker(kind.model)
    look, looks = running._look, []
    monkeypatch.setattr(running, "_look", lambda: (looks.append(1), look())[1])

    def let_it_look() -> None:
        seen = len(looks)
        wait_for(lambda: running.ring() or len(looks) >= seen + 3)

    with transaction.atomic():
        job = kind.enqueue()
        let_it_look()
        assert kind.rows.filter(pk=job.pk, status="pending").exists()
    wait_for(has_status(job, "completed"))
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        undone = kind.enqueue()
        let_it_look()
        raise ZeroDivisionError

    last = kind.enqueue()
    wait_for(has_status(last, "completed"))
    assert set(Effect.objects.values_list("job", flat=True)) == {job.pk, last.pk}
    assert not kind.rows.filter(pk=undone.pk).exists()


def test_no_more_run_at_the_same_time_than_there_are_seats(
    worker: Callable[..., Worker], tmp_path: Path
) -> None:
    gate = tmp_path / "open"
    for _ in range(5):
        Probe.objects.enqueue(script="wait_for_file", argument=str(gate))
    running = worker(seats={"probe": 2}).running

    wait_for(lambda: Probe.objects.filter(status="running").count() == 2)
    wait_for(lambda: Effect.objects.count() == 2)
    assert len(running) == 2
    assert Probe.objects.filter(status="pending").count() == 3

    gate.touch()
    wait_for(lambda: Probe.objects.filter(status="completed").count() == 5)


def test_reports_are_written_while_it_runs_and_end_at_a_hundred(
    worker: Callable[..., Worker],
) -> None:
    worker()
    job = Probe.objects.enqueue(script="report")
    seen: set[tuple[int, int | None]] = set()

    def over() -> bool:
        row = Probe.objects.get(pk=job.pk)
        seen.add((row.progress_pct, row.lines))
        return row.status == "completed"

    wait_for(over)
    assert len({percent for percent, _ in seen}) >= 4
    assert (100, 1000) in seen or Probe.objects.get(pk=job.pk).progress_pct == 100
    assert all(percent in (0, 99, 100) or lines == percent * 10 for percent, lines in seen)


def test_cancel_reaches_a_running_job_and_its_programs_within_a_second(
    worker: Callable[..., Worker], tmp_path: Path
) -> None:
    worker()
    note = tmp_path / "pid"
    job = Probe.objects.enqueue(script="program", argument=str(note))
    wait_for(lambda: note.exists() and note.read_text().strip())
    Probe.objects.get(pk=job.pk).cancel()
    wait_for(has_status(job, "cancelled"))

    job.refresh_from_db()
    assert (job.completed_at - job.cancel_requested_at).total_seconds() < 1
    assert is_gone(int(note.read_text()))
    assert log_of(job)[-1]["outcome"] == "cancelled"


def test_a_time_limit_kills_the_programs_and_ends_the_attempt(
    worker: Callable[..., Worker], tmp_path: Path
) -> None:
    worker()
    note = tmp_path / "pid"
    job = Probe.objects.enqueue(
        script="program", argument=str(note), max_running_seconds=0.5, max_attempts=1
    )
    wait_for(has_status(job, "failed"))
    assert is_gone(int(note.read_text()))
    assert (
        Probe.objects.get(pk=job.pk).error_message == "Took longer than the limit of 0.5 seconds."
    )
    assert log_of(job)[-1]["outcome"] == "timed out"


def test_threads_that_ignore_their_limit_are_replaced_and_the_worker_retires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.engine.beat.SECONDS_TO_OBEY", 0.2)
    gate = tmp_path / "open"
    deaf = [
        Probe.objects.enqueue(
            script="wait_deafly", argument=str(gate), max_running_seconds=0.3, max_attempts=1
        )
        for _ in range(2)
    ]
    worker = Worker([Probe], seats={"probe": 1})
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(worker.run()), daemon=True)
    thread.start()
    try:
        thread.join(20)
        assert codes == [EXIT_RETIRED]
        assert [status_of(job) for job in deaf] == ["failed", "failed"]
    finally:
        gate.touch()
    assert config().max_abandoned == 2


def test_a_stopping_worker_lets_jobs_finish(worker: Callable[..., Worker], tmp_path: Path) -> None:
    gate = tmp_path / "open"
    running = worker(grace_seconds=20)
    job = Probe.objects.enqueue(script="wait_for_file", argument=str(gate))
    wait_for(lambda: Effect.objects.exists())
    waiting = Probe.objects.enqueue()

    running.stop()
    gate.touch()
    wait_for(has_status(job, "completed"))

    assert status_of(waiting) == "pending" or Effect.objects.count() == 2


def test_a_second_stop_hands_running_jobs_back_with_their_attempt(
    worker: Callable[..., Worker],
) -> None:
    running = worker(grace_seconds=20)
    job = Probe.objects.enqueue(script="wait_politely")
    wait_for(lambda: Effect.objects.exists())

    running.stop()
    running.stop()
    wait_for(has_status(job, "pending"))

    row = Probe.objects.get(pk=job.pk)
    assert (row.attempts, row.due) == (0, True)
    assert [line["outcome"] for line in row.attempt_log] == ["released"]


def test_a_deleted_job_stops_and_its_seat_is_free_again(
    worker: Callable[..., Worker], jobs_settings: Callable[..., None]
) -> None:
    jobs_settings(LEASE_SECONDS=2, HEARTBEAT_SECONDS=0.3)
    worker(seats={"probe": 1})
    job = Probe.objects.enqueue(script="wait_politely")
    wait_for(lambda: Effect.objects.exists())

    Probe.objects.filter(pk=job.pk).delete()
    next_one = Probe.objects.enqueue()

    wait_for(has_status(next_one, "completed"))


def test_a_job_ten_times_longer_than_the_lease_runs_once(
    worker: Callable[..., Worker], jobs_settings: Callable[..., None]
) -> None:
    jobs_settings(LEASE_SECONDS=0.5, HEARTBEAT_SECONDS=0.1)
    job = Probe.objects.enqueue(script="hold_the_gil", argument="5")
    worker()
    wait_for(has_status(job, "completed"))
    assert Effect.objects.count() == 1


def test_an_enqueued_job_starts_long_before_the_next_poll(
    worker: Callable[..., Worker], jobs_settings: Callable[..., None]
) -> None:
    jobs_settings(POLL_SECONDS=60)
    running = worker()
    assert running.waker.ready.wait(10)

    jobs = Probe.objects.enqueue_many([{}, {}, {}])

    wait_for(lambda: Counter(map(status_of, jobs)) == {"completed": 3}, seconds=10)


@pytest.mark.parametrize(
    "report",
    [{"done": 2**70}, {"done": "x"}, {"lines": "abc"}, {"percent": float("nan")}, {"nothing": 1}],
    ids=str,
)
def test_a_report_that_no_column_takes_fails_its_own_job_alone(
    report: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    good = Chain.objects.enqueue(links=0)
    bad = Probe.objects.enqueue(max_attempts=1)
    monkeypatch.setattr(Probe, "perform", lambda self, run: run.report(**report))

    run_due()

    assert (status_of(bad), status_of(good)) == ("failed", "completed")


@pytest.mark.parametrize("seconds", [1e12, float("inf"), float("nan"), -5])
@pytest.mark.parametrize("error", [InDoubt, RetryAfter, Snooze])
def test_no_delay_is_too_long_for_a_database(
    error: Any, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Probe.objects.enqueue()
    raised: list[bool] = []

    def perform(self: Probe, run: Any) -> None:
        if not raised:
            raised.append(True)
            raise error(seconds)

    monkeypatch.setattr(Probe, "perform", perform)
    run_due()

    row = Probe.objects.get(pk=job.pk)
    assert row.status in ("pending", "completed")
    assert (row.run_at - timezone.now()).total_seconds() <= 30 * 24 * 3600


def test_an_attempt_in_doubt_is_followed_by_one_more_than_allowed_and_by_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Probe.objects.enqueue(max_attempts=1)
    numbers: list[int] = []

    def perform(self: Probe, run: Any) -> None:
        numbers.append(run.attempt)
        raise InDoubt(0, "who knows")

    monkeypatch.setattr(Probe, "perform", perform)
    run_due()

    row = Probe.objects.get(pk=job.pk)
    assert (row.status, row.error_message, numbers) == ("failed", "who knows", [1, 2])


def test_a_cancel_does_not_lift_the_time_limit(worker: Callable[..., Worker]) -> None:
    worker()
    job = Probe.objects.enqueue(script="sleep_without_checks", max_running_seconds=1)
    wait_for(lambda: Effect.objects.exists())
    Probe.objects.get(pk=job.pk).cancel()
    wait_for(has_status(job, "cancelled"), seconds=8)


def test_a_seat_survives_what_cannot_even_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_backoff(self: Probe, attempt: int) -> float:
        sys.exit("no back-off")

    Probe.objects.enqueue(script="raise_what_cannot_be_told", max_attempts=1)
    Probe.objects.enqueue(script="fail")
    good = Probe.objects.enqueue()
    monkeypatch.setattr(Probe, "backoff", no_backoff)

    run_due(seats={"probe": 1})

    assert status_of(good) == "completed"
    failed = Probe.objects.filter(status="failed").order_by("id")
    assert [job.error_message for job in failed] == [
        "Untellable: Untellable",
        "ValueError, of which no more can be told.",
    ]


def test_a_transaction_that_was_left_open_fails_its_job_and_no_other() -> None:
    bad = Probe.objects.enqueue(script="leave_a_transaction_open", max_attempts=1)
    good = Probe.objects.enqueue()

    run_due(seats={"probe": 1})

    assert status_of(good) == "completed"
    assert list(Effect.objects.values_list("job", flat=True)) == [good.pk]
    row = Probe.objects.get(pk=bad.pk)
    assert (row.status, row.error_message) == (
        "failed",
        "It left a transaction open, which is rolled back.",
    )


@pytest.mark.parametrize("name", ["LostClaim", "Lost", "Released"])
def test_a_handler_that_raises_the_workers_own_words_has_failed(name: str) -> None:
    job = Probe.objects.enqueue(script="raise_what_is_the_workers", argument=name, max_attempts=1)
    run_due()
    row = Probe.objects.get(pk=job.pk)
    assert (row.status, row.attempts) == ("failed", 1)
    assert name in row.error_message
