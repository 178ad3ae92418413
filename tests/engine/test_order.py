"""Keys, pauses, suspects and ageing: which job is next."""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models.functions import Now
from hypothesis import given
from hypothesis import strategies as st

from jobs.engine.ageing import raise_ranks
from jobs.engine.concurrency import Room, keys, parse
from jobs.engine.kinds import Pause, pause, resume
from jobs.engine.worker import Worker
from tests.engine.test_claiming import in_threads
from tests.kinds.models import Effect, Probe
from tests.kinds.scripted import Scripted, for_each_kind
from tests.waiting import wait_for

Start = Callable[..., Any]


def claim(limit: int = 10, **options: Any) -> list[Probe]:
    return Probe.objects.claim(limit, worker="w", lease_seconds=30, **options)


@given(
    st.dictionaries(
        st.text(st.characters(exclude_characters="|\x00"), min_size=1), st.integers(1, 99)
    )
)
def test_keys_and_limits_come_back_from_the_column(limits: dict[str, int]) -> None:
    assert parse(keys(limits)) == limits


@pytest.mark.parametrize("limits", [{"": 1}, {"a|b": 1}, {"a": 0}], ids=str)
def test_a_key_that_could_not_be_read_back_is_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="concurrency key"):
        keys(limits)


def test_a_job_needs_room_under_all_its_keys() -> None:
    room = Room([keys({"user:1": 2, "host:a": 1})])

    assert room.admit(keys({"user:1": 2, "host:b": 1}))
    assert not room.admit(keys({"user:1": 2, "host:c": 1}))
    assert not room.admit(keys({"user:2": 2, "host:b": 1}))
    assert room.admit(keys({"user:2": 2, "host:c": 1}))
    assert room.full == {"|user:1=2|", "|host:b=1|"}


@pytest.mark.django_db
def test_no_more_run_with_a_key_than_its_limit_and_others_pass_by() -> None:
    same = Probe.objects.enqueue_many({"concurrency_key": keys({"k": 2})} for _ in range(50))
    other = Probe.objects.enqueue()

    claimed = claim(4)

    assert [job.pk for job in claimed] == [same[0].pk, same[1].pk, other.pk]
    assert claim(4) == []
    claimed[0].complete()
    assert [job.pk for job in claim(4)] == [same[2].pk]


@pytest.mark.django_db
def test_a_dead_holder_frees_its_key_when_its_lease_ends() -> None:
    for _ in range(2):
        Probe.objects.enqueue(concurrency_key=keys({"k": 1}))
    (holder,) = claim()
    assert claim() == []
    Probe.objects.filter(pk=holder.pk).update(lease_until=Now() - timedelta(seconds=1))

    Probe.objects.rescue()

    assert len(claim()) == 1


@pytest.mark.django_db(transaction=True)
def test_a_limit_is_exact_while_eight_workers_claim_at_once() -> None:
    Probe.objects.enqueue_many({"concurrency_key": keys({f"k{n % 3}": 2})} for n in range(60))

    claimed = [job for jobs in in_threads(8, lambda: claim(3)) for job in jobs]

    running = Counter(
        Probe.objects.filter(status="running").values_list("concurrency_key", flat=True)
    )
    assert max(running.values()) <= 2
    assert len(claimed) == sum(running.values())
    # What the race left over is claimed by the next who asks.
    claim(10)
    running = Counter(
        Probe.objects.filter(status="running").values_list("concurrency_key", flat=True)
    )
    assert set(running.values()) == {2}
    assert len(running) == 3


@pytest.mark.django_db(transaction=True)
def test_jobs_with_a_key_go_one_after_the_other_over_two_processes(worker_process: Start) -> None:
    Probe.objects.enqueue_many({"concurrency_key": keys({"k": 1})} for _ in range(30))
    for _ in range(2):
        worker_process("--seats", "probe=4")
    most = 0

    def all_done() -> bool:
        nonlocal most
        most = max(most, Probe.objects.filter(status="running").count())
        return Probe.objects.filter(status="completed").count() == 30

    wait_for(all_done, seconds=40)
    assert most <= 1
    assert Effect.objects.count() == 30


@pytest.mark.django_db(transaction=True)
@for_each_kind
def test_a_paused_kind_waits_and_goes_on_at_once_when_it_is_resumed(
    worker: Callable[..., Worker], jobs_settings: Callable[..., None], kind: Scripted
) -> None:
    jobs_settings(POLL_SECONDS=30)
    using = connection.alias
    assert pause(str(kind), message="the disk is full", using=using)
    assert not pause(str(kind), using=using)
    running = worker(kind.model)
    assert running.waker.ready.wait(10)
    jobs = kind.enqueue_many(2)
    wait_for(lambda: running._look().paused)
    assert kind.count("pending") == 2

    assert resume(str(kind), using=using)

    wait_for(lambda: kind.count("completed") == 2, seconds=5)
    assert {job.pk for job in jobs} == set(Effect.objects.values_list("job", flat=True))


@pytest.mark.django_db
def test_each_reason_for_a_pause_is_lifted_by_itself() -> None:
    using = connection.alias
    pause("probe", using=using)
    pause("probe", reason="provider", using=using)
    assert resume("probe", using=using)
    assert Pause.objects.filter(kind="probe").count() == 1


@pytest.mark.django_db
def test_the_command_lists_pauses_and_resumes(capsys: pytest.CaptureFixture[str]) -> None:
    Probe.objects.enqueue()
    call_command("jobs", "pause", "probe", message="for the night")
    call_command("jobs", "list", "probe")
    call_command("jobs", "resume", "probe")
    call_command("jobs", "resume", "probe")
    counts = "1 pending, 0 running, 0 completed, 0 failed, 0 cancelled"
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "probe is paused.",
        f"probe: {counts} (paused by operator: for the night)",
        "probe goes on.",
        "probe was not paused.",
    ]
    with pytest.raises(CommandError, match="Which kinds"):
        call_command("jobs", "pause")


@pytest.mark.django_db
def test_after_a_crash_suspects_are_left_to_those_who_ask_for_them() -> None:
    jobs = [Probe.objects.enqueue() for _ in range(3)]
    claim()
    Probe.objects.update(lease_until=Now() - timedelta(seconds=1))
    Probe.objects.rescue()

    assert claim() == []
    (first,) = claim(1, suspects=True)
    first.complete()

    assert not Probe.objects.get(pk=jobs[0].pk).suspect
    assert Probe.objects.filter(suspect=True).count() == 2


@pytest.mark.django_db(transaction=True)
def test_what_ran_beside_a_job_that_kills_its_process_is_blamed_once(
    worker_process: Start, tmp_path: Path
) -> None:
    gate = tmp_path / "open"
    beside = [Probe.objects.enqueue(script="wait_for_file", argument=str(gate)) for _ in range(3)]
    first = worker_process("--seats", "probe=4").wait_ready()
    wait_for(lambda: Effect.objects.count() == 3)
    poison = Probe.objects.enqueue(script="die", max_attempts=3)
    assert first.wait() == 9

    worker_process("--seats", "probe=4")
    wait_for(lambda: Probe.objects.get(pk=poison.pk).status == "failed", seconds=40)
    gate.touch()
    wait_for(lambda: Probe.objects.filter(status="completed").count() == 3)

    for job in beside:
        assert Probe.objects.get(pk=job.pk).attempts == 2
    log = Probe.objects.get(pk=poison.pk).attempt_log
    assert [line["outcome"] for line in log] == ["worker lost"] * 3


@pytest.mark.django_db
def test_old_jobs_of_low_priority_overtake_in_the_end() -> None:
    old = Probe.objects.enqueue(priority=-100)
    Probe.objects.filter(pk=old.pk).update(run_at=Now() - timedelta(hours=3))
    middle = Probe.objects.enqueue(priority=-5)
    Probe.objects.filter(pk=middle.pk).update(run_at=Now() - timedelta(minutes=20))
    urgent = Probe.objects.enqueue(priority=5)
    assert [job.pk for job in Probe.objects.ready()] == [urgent.pk, middle.pk, old.pk]

    assert raise_ranks(Probe) == 2

    assert [job.pk for job in Probe.objects.ready()] == [old.pk, middle.pk, urgent.pk]
    assert set(Probe.objects.values_list("priority", flat=True)) == {-100, -5, 5}
    assert raise_ranks(Probe) == 0


@pytest.mark.django_db
def test_what_is_only_old_never_passes_the_highest_priority() -> None:
    for priority in (-100, 0, 99):
        old = Probe.objects.enqueue(priority=priority)
        Probe.objects.filter(pk=old.pk).update(run_at=Now() - timedelta(days=3))
    urgent = Probe.objects.enqueue(priority=100)
    raise_ranks(Probe)
    assert next(iter(Probe.objects.ready())).pk == urgent.pk
    assert raise_ranks(Probe) == 0


@pytest.mark.django_db
def test_a_backlog_in_order_is_not_written_by_ageing() -> None:
    Probe.objects.enqueue_many({} for _ in range(5))
    Probe.objects.update(run_at=Now() - timedelta(days=1))
    assert raise_ranks(Probe) == 0


@pytest.mark.django_db
def test_keys_mind_their_case_on_both_databases() -> None:
    for key in ("u:A", "u:A", "u:a"):
        Probe.objects.enqueue(concurrency_key=keys({key: 1}))
    assert [parse(job.concurrency_key) for job in claim()] == [{"u:A": 1}, {"u:a": 1}]


@pytest.mark.django_db
@pytest.mark.parametrize("column", ["|user:5|", "user:5=1", "|=1|", "|a=x|", 5])
def test_a_malformed_key_is_refused_at_the_call_and_harmless_in_a_row(column: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="concurrency_key"):
        Probe.objects.enqueue(concurrency_key=column)
    job = Probe.objects.enqueue()
    Probe.objects.filter(pk=job.pk).update(concurrency_key=column)
    assert [one.pk for one in claim()] == [job.pk]


def held(worker: Start, number: int, path: Path, **options: Any) -> None:
    """Jobs that hold seats until there is a file at `path`."""
    script = {"script": "wait_for_file", "argument": str(path)}
    Probe.objects.enqueue_many([script] * number)
    worker(Probe, **options)


@pytest.mark.parametrize(("seats", "kept"), [(1, 0), (2, 1), (3, 1), (4, 2), (8, 2)])
def test_half_of_the_seats_at_most_are_kept_for_urgent_jobs(
    worker: Start, tmp_path: Path, monkeypatch: Any, seats: int, kept: int
) -> None:
    monkeypatch.setattr(Probe, "urgent_seats", 2)
    go = tmp_path / "go"
    held(worker, 10, go, seats={"probe": seats})
    wait_for(lambda: Effect.objects.count() == seats - kept)

    urgent = {"script": "wait_for_file", "argument": str(go), "priority": 100}
    Probe.objects.enqueue_many([urgent] * 3)
    wait_for(lambda: Effect.objects.count() == seats)

    running = Probe.objects.filter(status="running")
    assert running.filter(priority=100).count() == kept
    go.touch()
    wait_for(lambda: Probe.objects.filter(status="completed").count() == 13)


def test_a_job_that_is_only_old_or_almost_urgent_takes_no_kept_seat(
    worker: Start, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(Probe, "urgent_seats", 1)
    go = tmp_path / "go"
    held(worker, 2, go, seats={"probe": 2})
    wait_for(lambda: Effect.objects.count() == 1)
    Probe.objects.filter(status="pending").update(created_at=Now() - timedelta(days=30))
    raise_ranks(Probe)
    Probe.objects.enqueue(priority=99)

    Probe.objects.enqueue(priority=100)
    wait_for(lambda: Probe.objects.filter(status="completed", priority=100).exists())

    assert Probe.objects.filter(status="running").count() == 1
    assert Probe.objects.filter(status="pending").count() == 2
    go.touch()
    wait_for(lambda: Probe.objects.filter(status="completed").count() == 4)


def test_a_suspect_does_not_wait_for_a_backlog(worker_process: Start) -> None:
    Probe.objects.enqueue_many({"script": "tarry"} for _ in range(100))
    suspect = Probe.objects.enqueue()
    Probe.objects.filter(pk=suspect.pk).update(suspect=True)

    worker_process("--seats", "probe=1")
    wait_for(lambda: Probe.objects.filter(pk=suspect.pk, status="completed").exists())

    assert Probe.objects.filter(status="pending").count() > 50
