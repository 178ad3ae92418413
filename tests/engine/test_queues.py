"""Workers that serve some queues: what they take, see and leave alone."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings
from django.utils import timezone

from jobs.engine import maintenance
from jobs.engine.isolation import Isolation
from jobs.engine.models import TaskJob
from jobs.engine.worker import Worker
from tests.kinds import tasks
from tests.kinds.models import Probe
from tests.waiting import wait_for
from tests.workers import has_status, run_due

BACKEND = "jobs.engine.backend.JobsBackend"
pytestmark = pytest.mark.django_db(transaction=True)


def in_queues(*names: str, **options: Any) -> list[TaskJob]:
    results = [tasks.noop.using(queue_name=name, **options).enqueue() for name in names]
    return [TaskJob.objects.get(pk=result.id) for result in results]


def statuses() -> dict[str, set[str]]:
    told: dict[str, set[str]] = {}
    for name, status in TaskJob.objects.values_list("queue_name", "status"):
        told.setdefault(name, set()).add(status)
    return told


def test_a_worker_runs_only_its_queues_and_other_kinds_as_ever() -> None:
    in_queues("default", "mail", "slow", "mail")
    probe = Probe.objects.enqueue()
    assert run_due(TaskJob, Probe, queues=["mail", "slow"]) == 0
    assert statuses() == {"default": {"pending"}, "mail": {"completed"}, "slow": {"completed"}}
    probe.refresh_from_db()
    assert probe.status == "completed"
    assert run_due(TaskJob) == 0
    assert statuses()["default"] == {"completed"}


def test_a_worker_does_not_see_the_work_of_other_queues() -> None:
    (suspect,) = in_queues("slow")
    TaskJob.objects.filter(pk=suspect.pk).update(suspect=True)
    in_queues("default")

    def sight(*queues: str) -> tuple[bool, bool]:
        seen = maintenance.look([TaskJob, Probe], using="default", queues=queues)
        return TaskJob in seen.due, TaskJob in seen.suspects

    assert sight() == (True, True)
    assert sight("default") == (True, False)
    assert sight("slow") == (False, True)
    assert sight("mail") == (False, False)
    assert sight("mail", "default", "slow") == (True, True)


def test_the_time_of_a_row_comes_whoever_looks() -> None:
    (job,) = in_queues("mail", run_after=timezone.now() + timedelta(hours=1))
    TaskJob.objects.filter(pk=job.pk).update(run_at=timezone.now() - timedelta(seconds=1))
    run_due(TaskJob, queues=["default"])
    job.refresh_from_db()
    assert (job.status, job.due) == ("pending", True)


def test_a_claim_takes_one_queue_in_the_usual_order() -> None:
    low, high = in_queues("mail", priority=-1)[0], in_queues("mail", priority=5)[0]
    in_queues("default", priority=100)
    claimed = TaskJob.objects.claim(9, worker="w", lease_seconds=30, queue="mail")
    assert [job.pk for job in claimed] == [high.pk, low.pk]
    assert [
        j.kind for j in Probe.objects.claim(9, worker="w", lease_seconds=30, queue="mail")
    ] == []
    Probe.objects.enqueue()
    assert len(Probe.objects.claim(9, worker="w", lease_seconds=30, queue="mail")) == 1


def test_queues_share_the_seats_in_turn() -> None:
    in_queues(*["default"] * 6, *["mail"] * 6)
    worker = Worker([TaskJob], queues=["default", "mail"], seats={"task": 2}, burst=True)
    assert {worker._queues_in_turn(TaskJob)[0] for worker._turn in range(4)} == {"default", "mail"}
    assert worker._queues_in_turn(Probe) == [None]
    assert worker.run() == 0
    assert statuses() == {"default": {"completed"}, "mail": {"completed"}}


def test_concurrency_keys_count_the_running_ones_of_all_queues() -> None:
    for queue in ("mail", "slow"):
        tasks.report.using(queue_name=queue).enqueue_many([((n,), {}) for n in (1,)])
        TaskJob.objects.filter(queue_name=queue).update(unique_key=None)
    tasks.report.using(queue_name="slow").enqueue(2)
    first = TaskJob.objects.claim(9, worker="w", lease_seconds=30, queue="mail")
    second = TaskJob.objects.claim(9, worker="w", lease_seconds=30, queue="slow")
    # Two at once on a host, as the task says, and one of another queue is one of them.
    assert (len(first), len(second)) == (1, 1)


def test_the_claim_of_a_queue_is_served_by_its_index() -> None:
    in_queues(*["default"] * 400, *["mail"] * 10)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE jobs_engine_taskjob")
    plan = TaskJob.objects.ready().in_queue("mail").filter(suspect=False)[:4].explain()
    assert "jobs_engine_taskjob_queue" in plan
    assert not re.search(r"Sort|TEMP B-TREE", plan)


def test_children_for_suspects_are_as_many_as_their_queues_need() -> None:
    mail, slow = in_queues("mail", "slow")
    TaskJob.objects.filter(pk__in=[mail.pk, slow.pk]).update(suspect=True)

    def wanted(*queues: str) -> int:
        return Isolation(lambda _kind: None, queues=queues, ended=lambda _kind: None).wanted(
            TaskJob
        )

    assert (wanted(), wanted("mail"), wanted("mail", "slow"), wanted("default")) == (2, 1, 2, 0)


def test_runworker_serves_the_queues_that_it_is_told(worker_process: Callable[..., Any]) -> None:
    default, mail = in_queues("default", "mail")
    (suspect, other_suspect) = in_queues("mail", "slow")
    TaskJob.objects.filter(pk__in=[suspect.pk, other_suspect.pk]).update(suspect=True)
    process = worker_process("--kinds", "task", "--queues", "mail", "--processes=1").wait_ready()
    wait_for(has_status(mail, "completed"))
    wait_for(has_status(suspect, "completed"))
    process.process.terminate()
    assert process.wait() == 0
    assert statuses() == {
        "default": {"pending"},
        "mail": {"completed"},
        "slow": {"pending"},
    }
    default.refresh_from_db()
    assert default.attempts == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--queues", "post"], "Unknown queue: post. Queues: default, mail, slow. Others are"),
        (["--queues", ","], "Unknown queue: none given"),
        (["--queues", "mail", "--kinds", "probe"], "none of the kinds of this worker has queues"),
    ],
)
def test_a_queue_that_nobody_declares_is_refused(arguments: list[str], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        call_command("runworker", *arguments)


def test_an_alias_without_a_list_of_queues_lets_any_pass() -> None:
    from jobs.engine.management.commands.runworker import chosen_queues, declared_queues

    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": []}}):
        assert chosen_queues(" a, b,a", [TaskJob]) == ["a", "b"]
    dummy = "django.tasks.backends.dummy.DummyBackend"
    with override_settings(TASKS={"default": {"BACKEND": dummy, "QUEUES": ["theirs"]}}):
        assert declared_queues() == {"default"}
    odd = override_settings(TASKS={"odd": {"BACKEND": "no.such.Backend"}})
    with odd, pytest.raises(CommandError, match=r"odd.*Could not find backend"):
        declared_queues()
