"""One job for each tick, whoever asks and how often."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.db.models.functions import Now

from jobs.engine.apps import make_built_in_schedules
from jobs.engine.models import Schedule, TaskJob
from jobs.engine.retention import delete_old_jobs
from tests.engine.test_claiming import in_threads
from tests.kinds.models import Probe

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_others(db: None) -> None:
    """The built-in ones tick by the clock, some of them each hour."""
    Schedule.objects.all().delete()


def every_minute(**more: Any) -> Schedule:
    return Schedule.objects.create(
        name="probe", cron="* * * * *", kind="probe", columns={"argument": "tick"}, **more
    )


def make_due(schedule: Schedule, *, seconds_ago: float = 1) -> None:
    Schedule.objects.filter(pk=schedule.pk).update(next_at=Now() - timedelta(seconds=seconds_ago))


def test_a_new_schedule_knows_its_next_tick() -> None:
    schedule = every_minute()
    assert schedule.next_at is not None
    assert timedelta(0) < schedule.next_at - datetime.now(UTC) <= timedelta(seconds=61)
    assert not Schedule.objects.due().exists()


@pytest.mark.django_db(transaction=True)
def test_many_workers_make_one_job_for_a_tick() -> None:
    make_due(every_minute())

    made = [job for jobs in in_threads(6, Schedule.objects.tick) for job in jobs]

    assert len(made) == 1
    assert Probe.objects.get().argument == "tick"
    assert not Schedule.objects.due().exists()


@pytest.mark.parametrize(("catch_up", "jobs"), [("skip", 0), ("once", 1)])
def test_missed_ticks_follow_the_policy(catch_up: str, jobs: int) -> None:
    make_due(every_minute(catch_up=catch_up), seconds_ago=3600)

    Schedule.objects.tick()
    Schedule.objects.tick()

    assert Probe.objects.count() == jobs
    assert Schedule.objects.get(name="probe").next_at > datetime.now(UTC)


def test_a_disabled_schedule_does_not_tick() -> None:
    schedule = every_minute()
    make_due(schedule)
    schedule.enabled = False
    schedule.save()
    assert Schedule.objects.tick() == []
    assert schedule.next_at is None


def test_ticks_are_right_over_a_change_of_the_clock() -> None:
    schedule = Schedule(name="n", cron="30 2 * * *", time_zone="Europe/Paris")
    before = datetime(2026, 10, 23, 12, tzinfo=UTC)
    ticks = [
        tick.astimezone(UTC) for tick, _ in zip(schedule.ticks(before), range(3), strict=False)
    ]
    # In the night of 25 October half past two comes twice; it runs once.
    assert [(tick.day, tick.hour) for tick in ticks] == [(24, 0), (25, 0), (26, 1)]


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ({"cron": "every day"}, "cron"),
        ({"cron": "61 * * * *"}, "cron"),
        ({"time_zone": "Mars/Olympus"}, "time_zone"),
        ({"time_zone": "../../etc/passwd"}, "time_zone"),
        ({"kind": "nothing"}, "kind"),
        ({"columns": {"no_such_column": 1}}, "columns"),
        ({"columns": ["a list"]}, "columns"),
        ({"columns": {"priority": "high"}}, "columns"),
    ],
    ids=str,
)
def test_a_wrong_schedule_is_told_at_its_field(columns: dict[str, Any], field: str) -> None:
    schedule = Schedule(**{"name": "n", "cron": "0 4 * * *", "kind": "probe", **columns})
    with pytest.raises(ValidationError) as caught:
        schedule.full_clean()
    assert field in caught.value.message_dict


def test_retention_is_built_in_and_deletes_what_is_old() -> None:
    make_built_in_schedules(using=connection.alias)
    built_in = Schedule.objects.get(name="retention")
    kept = Probe.objects.enqueue()
    for age in (1, 10):
        job = Probe.objects.enqueue()
        job.cancel()
        Probe.objects.filter(pk=job.pk).update(completed_at=Now() - timedelta(days=age))
    make_due(built_in)
    (job,) = Schedule.objects.tick()
    assert isinstance(job, TaskJob)

    assert delete_old_jobs() == {"probe": 1}
    assert delete_old_jobs() == {}
    assert Probe.objects.filter(pk=kept.pk).exists()
    assert Probe.objects.count() == 2


@pytest.mark.parametrize("days", [0, -1, 36_501, 1e10])
def test_a_row_cannot_be_kept_for_longer_than_there_are_days(days: float) -> None:
    with pytest.raises(ValueError, match="keep_days must be above 0 and at most 36500"):
        TaskJob.objects.enqueue(task="operator.neg", keep_days=days)


def cancelled(kind: type[Any], number: int, **columns: Any) -> list[Any]:
    jobs = [kind.objects.enqueue(**columns) for _ in range(number)]
    for job in jobs:
        job.cancel()
    kind.objects.update(completed_at=Now() - timedelta(days=8))
    return jobs


def test_a_row_that_asks_for_too_many_days_stops_no_retention() -> None:
    odd, _old = cancelled(TaskJob, 2, task="operator.neg")
    TaskJob.objects.filter(pk=odd.pk).update(keep_days=1e10)
    cancelled(Probe, 1)
    assert delete_old_jobs() == {"task": 1, "probe": 1}
    assert TaskJob.objects.get().pk == odd.pk


def test_a_kind_that_fails_keeps_no_other_from_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled(Probe, 1)
    cancelled(TaskJob, 1, task="operator.neg")
    for broken, other in ((TaskJob, Probe), (Probe, TaskJob)):
        with monkeypatch.context() as patch:
            patch.setattr(broken, "retention_days", "many")
            with pytest.raises(ExceptionGroup, match="Old jobs of some kinds"):
                delete_old_jobs()
        assert not other.objects.exists()
        cancelled(other, 1, **({"task": "operator.neg"} if other is TaskJob else {}))


def test_a_job_whose_files_cannot_be_deleted_stays_and_the_others_go(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, *_others = cancelled(Probe, 5)

    def delete_files(job: Any) -> None:
        if job.pk == first.pk:
            raise PermissionError("read-only")

    monkeypatch.setattr(Probe, "delete_files", delete_files)
    monkeypatch.setattr("jobs.engine.retention.BATCH", 2)
    assert delete_old_jobs() == {"probe": 4}
    assert Probe.objects.get().pk == first.pk
    assert "its files cannot be deleted" in caplog.text


def test_deleting_old_jobs_deletes_their_files(monkeypatch: pytest.MonkeyPatch) -> None:
    deleted: list[Any] = []
    monkeypatch.setattr(Probe, "delete_files", lambda self: deleted.append(self.pk))
    jobs = [Probe.objects.enqueue() for _ in range(3)]
    for job in jobs:
        job.cancel()
    Probe.objects.update(completed_at=Now() - timedelta(days=8))

    delete_old_jobs()

    assert deleted == [job.pk for job in jobs]
    assert not Probe.objects.exists()


@pytest.mark.parametrize(
    "columns", [{"nope": 1}, {"script": "x" * 500}, {"priority": "high"}, "{}"], ids=str
)
def test_a_schedule_that_makes_no_job_keeps_no_other_from_its_tick(columns: Any) -> None:
    bad = Schedule.objects.create(name="bad", cron="* * * * *", kind="probe", columns=columns)
    good = every_minute()
    for schedule in (bad, good):
        make_due(schedule)

    assert [job.argument for job in Schedule.objects.tick()] == ["tick"]

    assert not Schedule.objects.due().exists()
