"""The state machine, verb by verb, and every pair that it forbids."""

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from jobs.engine.lifecycle import Job, LostClaim, Refused
from jobs.engine.row import Status
from tests.kinds.models import Chain, Letter, Probe
from tests.workers import age_lease, run_due

pytestmark = pytest.mark.django_db


def in_state(status: str) -> Probe:
    """A job that came into `status` by verbs alone."""
    job = Probe.objects.enqueue(script="nothing")
    if status == "pending":
        return job
    if status == "cancelled":
        job.cancel()
        return job
    (job,) = Probe.objects.claim(1, worker="w", lease_seconds=30)
    if status == "completed":
        job.complete()
    if status == "failed":
        job.fail(job.log_entry("failed", ended_at=None, message="no luck"))
    return job


def fresh(job: Job) -> Any:
    return type(job).objects.get(pk=job.pk)


def entry(job: Job) -> dict[str, Any]:
    return job.log_entry("failed", ended_at=None, message="no luck")


WORKER_VERBS: dict[str, Callable[[Probe], Any]] = {
    "complete": lambda job: job.complete(),
    "retry_later": lambda job: job.retry_later(5, entry(job)),
    "fail": lambda job: job.fail(entry(job)),
    "release": lambda job: job.release(entry(job)),
    "snooze": lambda job: job.snooze(60, entry(job)),
    "cancelled": lambda job: job.cancelled(entry(job)),
    "report": lambda job: job.report(progress_pct=5),
    "note": lambda job: job.note(argument="5"),
}
AFTER = {
    "complete": "completed",
    "retry_later": "pending",
    "fail": "failed",
    "release": "pending",
    "snooze": "pending",
    "cancelled": "cancelled",
    "report": "running",
    "note": "running",
}


@pytest.mark.parametrize("verb", WORKER_VERBS)
def test_a_running_job_moves_by_each_verb_of_its_worker(verb: str) -> None:
    job = in_state("running")

    WORKER_VERBS[verb](job)

    assert fresh(job).status == AFTER[verb]


@pytest.mark.parametrize("verb", WORKER_VERBS)
@pytest.mark.parametrize("status", ["pending", "completed", "failed", "cancelled"])
def test_no_verb_of_a_worker_moves_a_job_that_does_not_run(verb: str, status: str) -> None:
    job = in_state(status)
    before = Probe.objects.filter(pk=job.pk).values().get()

    with pytest.raises(LostClaim):
        WORKER_VERBS[verb](job)

    assert Probe.objects.filter(pk=job.pk).values().get() == before


@pytest.mark.parametrize("verb", WORKER_VERBS)
def test_a_lost_claim_can_change_nothing(verb: str) -> None:
    zombie = in_state("running")
    age_lease(zombie)
    Probe.objects.rescue()
    (newer,) = Probe.objects.claim(1, worker="other", lease_seconds=30, suspects=True)
    before = Probe.objects.filter(pk=newer.pk).values().get()

    with pytest.raises(LostClaim):
        WORKER_VERBS[verb](zombie)

    assert Probe.objects.filter(pk=newer.pk).values().get() == before


def test_a_note_is_written_where_its_condition_holds_and_else_nothing_is() -> None:
    job = in_state("running")
    before = Probe.objects.filter(pk=job.pk).values().get()
    with pytest.raises(LostClaim):
        job.note(among=Q(run_at__gt=Now()), argument="5")
    assert Probe.objects.filter(pk=job.pk).values().get() == before

    job.note(among=Q(run_at__lte=Now()), argument="5")
    assert fresh(job).argument == "5"


def test_a_claim_starts_an_attempt_from_zero_percent() -> None:
    job = Probe.objects.enqueue()
    Probe.objects.filter(pk=job.pk).update(progress_pct=43, progress_step="half", lines=7)

    (claimed,) = Probe.objects.claim(5, worker="me", lease_seconds=30)

    row = fresh(job)
    assert (row.status, row.attempts, row.worker, row.progress_pct) == ("running", 1, "me", 0)
    assert (row.progress_step, row.lines) == ("", None)
    assert row.claim == claimed.claim
    assert row.lease_until == row.started_at + timedelta(seconds=30)
    assert (claimed.status, claimed.attempts, claimed.started_at) == ("running", 1, row.started_at)


def test_each_claim_is_a_fresh_one() -> None:
    job = in_state("running")
    job.release(entry(job))

    (again,) = Probe.objects.claim(1, worker="w", lease_seconds=30)

    assert again.claim != job.claim
    assert again.attempts == 1


def test_claims_follow_priority_then_time_then_age() -> None:
    late = Probe.objects.enqueue(argument="late")
    Probe.objects.filter(pk=late.pk).update(run_at=Now() + timedelta(seconds=5))
    first = Probe.objects.enqueue(argument="first")
    second = Probe.objects.enqueue(argument="second")
    Probe.objects.filter(pk__in=[first.pk, second.pk]).update(run_at=first.run_at)
    urgent = Probe.objects.enqueue(argument="urgent", priority=10)

    order = [job.pk for job in Probe.objects.claim(9, worker="w", lease_seconds=30)]

    assert order == [urgent.pk, first.pk, second.pk, late.pk]


def test_a_future_job_is_claimed_only_after_its_time_came() -> None:
    job = Probe.objects.enqueue(run_at=timezone.now() + timedelta(hours=1))
    assert Probe.objects.claim(1, worker="w", lease_seconds=30) == []
    assert Probe.objects.mature() == 0

    Probe.objects.filter(pk=job.pk).update(run_at=Now() - timedelta(seconds=1))

    assert Probe.objects.mature() == 1
    assert [j.pk for j in Probe.objects.claim(1, worker="w", lease_seconds=30)] == [job.pk]


def test_a_retry_keeps_the_attempt_its_log_and_why() -> None:
    job = in_state("running")

    job.retry_later(5, {**entry(job), "message": "the network was away"})

    row = fresh(job)
    assert (row.status, row.due, row.attempts) == ("pending", False, 1)
    assert row.error_message == "the network was away"
    assert [line["number"] for line in row.attempt_log] == [1]
    assert row.run_at > row.started_at + timedelta(seconds=4)


def test_release_and_snooze_hand_the_attempt_back() -> None:
    for _ in range(10):
        (job,) = Probe.objects.claim(1, worker="w", lease_seconds=30) or [in_state("running")]
        assert job.attempts == 1
        job.release({**entry(job), "outcome": "released"})
    row = fresh(job)
    assert row.attempts == 0
    assert [(line["number"], line["outcome"]) for line in row.attempt_log] == [(1, "released")]
    assert row.attempt_log[0]["times"] == 10
    assert row.spent_attempts == []

    (job,) = Probe.objects.claim(1, worker="w", lease_seconds=30)
    job.snooze(0, {**entry(job), "outcome": "snoozed"})
    (job,) = Probe.objects.claim(1, worker="w", lease_seconds=30)
    job.retry_later(0, {**entry(job), "message": "no luck"})
    row = fresh(job)
    assert [line["outcome"] for line in row.attempt_log] == ["released", "snoozed", "failed"]
    assert [line["message"] for line in row.spent_attempts] == ["no luck"]


def test_release_of_a_job_that_is_to_be_cancelled_cancels_it() -> None:
    job = in_state("running")
    assert Probe.objects.get(pk=job.pk).cancel() == Status.RUNNING

    job.release(entry(job))

    assert fresh(job).status == "cancelled"


def test_rescue_gives_an_expired_job_back_at_once_and_says_why() -> None:
    job = in_state("running")
    age_lease(job)

    (rescued,) = Probe.objects.rescue()

    row = fresh(job)
    assert rescued.pk == job.pk
    assert (row.status, row.due, row.attempts, row.progress_pct) == ("pending", True, 1, 0)
    assert row.attempt_log[-1]["outcome"] == "worker lost"


def test_rescue_fails_a_job_without_attempts_and_cancels_one_that_was_to_be_cancelled() -> None:
    spent, asked = in_state("running"), in_state("running")
    Probe.objects.filter(pk=spent.pk).update(max_attempts=1)
    Probe.objects.get(pk=asked.pk).cancel()
    for job in (spent, asked):
        age_lease(job)

    Probe.objects.rescue()

    assert (fresh(spent).status, fresh(asked).status) == ("failed", "cancelled")
    assert fresh(spent).error_message


def test_a_job_in_doubt_is_started_once_more_after_its_last_attempt_and_not_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Probe, "in_doubt", lambda self: True)
    job = in_state("running")
    Probe.objects.filter(pk=job.pk).update(max_attempts=1)
    Probe.objects.rescue(dead=["w"])
    assert (fresh(job).status, fresh(job).attempts) == ("pending", 1)

    Probe.objects.claim(1, worker="w", lease_seconds=30, suspects=True)
    Probe.objects.rescue(dead=["w"])

    assert (fresh(job).status, fresh(job).attempts) == ("failed", 2)


def test_put_off_writes_new_times_and_leaves_alone_what_was_claimed_meanwhile() -> None:
    claimed = in_state("running")
    first, second = in_state("pending"), in_state("pending")
    moment = timezone.now() + timedelta(minutes=5)
    moments = {
        first.pk: moment,
        second.pk: moment + timedelta(minutes=1),
        claimed.pk: moment,
        uuid.uuid4(): moment,
    }

    assert Probe.objects.put_off(moments, "cancel_requested_at", rank=7) == 2

    for job in (first, second):
        row = fresh(job)
        assert (row.status, row.due, row.rank) == ("pending", False, 7)
        assert row.run_at == row.cancel_requested_at == moments[job.pk]
    row = fresh(claimed)
    assert (row.status, row.cancel_requested_at, row.rank) == ("running", None, 0)


def test_rescue_leaves_those_alone_whose_lease_holds() -> None:
    job = in_state("running")

    assert Probe.objects.rescue() == []
    assert Probe.objects.rescue(dead=["somebody else"]) == []
    assert fresh(job).status == "running"
    assert [j.pk for j in Probe.objects.rescue(dead=["w"])] == [job.pk]


def test_renew_tells_which_claims_are_lost() -> None:
    kept, lost, gone = (in_state("running") for _ in range(3))
    claims = {job.pk: job.claim for job in (kept, lost, gone)}
    age_lease(lost)
    Probe.objects.rescue()
    Probe.objects.claim(1, worker="other", lease_seconds=30, suspects=True)
    Probe.objects.filter(pk=gone.pk).delete()
    age_lease(kept, seconds=1)

    assert Probe.objects.renew(claims, lease_seconds=30) == {lost.pk, gone.pk}
    assert Probe.objects.expired().count() == 0


def test_cancel_of_a_running_job_is_asked_and_of_an_ended_one_refused() -> None:
    running = in_state("running")
    assert fresh(running).cancel() == Status.RUNNING
    assert Probe.objects.cancel_requests({running.pk: running.claim}) == {running.pk}
    running.complete()
    assert fresh(running).status == "completed"
    for status in ("completed", "failed", "cancelled"):
        with pytest.raises(Refused):
            in_state(status).cancel()


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_requeue_starts_over_and_keeps_the_history(status: str) -> None:
    job = in_state(status)
    log = fresh(job).attempt_log

    job.requeue()

    row = fresh(job)
    assert (row.status, row.attempts, row.completed_at, row.error_message) == (
        "pending",
        0,
        None,
        "",
    )
    assert (row.attempt_log, row.cancel_requested_at, row.due) == (log, None, True)


@pytest.mark.parametrize("status", ["pending", "running", "completed"])
def test_requeue_is_refused_for_what_did_not_fail(status: str) -> None:
    with pytest.raises(Refused):
        in_state(status).requeue()


def test_an_equal_key_returns_the_waiting_or_running_job() -> None:
    first = Probe.objects.enqueue(unique_key="k")
    again = Probe.objects.enqueue(unique_key="k")
    assert again.pk == first.pk
    assert (first.duplicate, again.duplicate) == (False, True)
    (running,) = Probe.objects.claim(1, worker="w", lease_seconds=30)
    assert Probe.objects.enqueue(unique_key="k").pk == first.pk
    running.complete()

    assert Probe.objects.enqueue(unique_key="k").pk != first.pk


def test_requeue_is_refused_while_an_equal_key_is_taken() -> None:
    old = Probe.objects.enqueue(unique_key="k")
    old.cancel()
    Probe.objects.enqueue(unique_key="k")

    with pytest.raises(Refused):
        old.requeue()

    assert fresh(old).status == "cancelled"


def test_follow_up_work_and_completion_are_one() -> None:
    Chain.objects.enqueue(links=3)
    (job,) = Chain.objects.claim(1, worker="w", lease_seconds=30)

    job.complete(3)

    assert (fresh(job).status, fresh(job).done, Probe.objects.count()) == (
        "completed",
        "chained",
        3,
    )


def test_failing_follow_up_work_leaves_nothing_behind() -> None:
    Chain.objects.enqueue()
    (job,) = Chain.objects.claim(1, worker="w", lease_seconds=30)

    with pytest.raises(ValueError, match="follow-up"):
        job.complete(-1)

    assert fresh(job).status == "running"


def test_a_job_of_a_transaction_that_rolls_back_never_was() -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        Probe.objects.enqueue()
        raise RuntimeError
    assert not Probe.objects.exists()


def test_enqueue_many_inserts_a_thousand_in_one_statement(
    django_assert_max_num_queries: Callable[..., Any],
) -> None:
    # One INSERT, a NOTIFY on PostgreSQL, and the savepoint around them.
    with django_assert_max_num_queries(4):
        Probe.objects.enqueue_many({"argument": str(number)} for number in range(1000))
    assert Probe.objects.ready().count() == 1000


def test_enqueue_many_returns_the_equal_of_a_taken_key_as_enqueue_does() -> None:
    first = Probe.objects.enqueue(unique_key="a")
    keys = ["a", "b", None, "b", None]
    jobs = Probe.objects.enqueue_many({"unique_key": key} for key in keys)
    assert [job.duplicate for job in jobs] == [True, False, False, True, False]
    assert (jobs[0].pk, jobs[3].pk) == (first.pk, jobs[1].pk)
    assert Probe.objects.count() == 4
    # What else is in the way is told, and then nothing is stored.
    with pytest.raises(IntegrityError):
        Probe.objects.enqueue_many([{"unique_key": "c"}, {"id": first.pk, "unique_key": "d"}])
    assert Probe.objects.count() == 4


@pytest.mark.parametrize(
    "columns",
    [
        {"status": "running"},
        {"claim": uuid.uuid4()},
        {"lease_until": Now()},
        {"status": "sleeping"},
        {"progress_pct": 101},
        {"progress_pct": -1},
    ],
    ids=str,
)
def test_the_database_refuses_half_states(columns: dict[str, Any]) -> None:
    job = in_state("pending")
    with pytest.raises(IntegrityError), transaction.atomic():
        Probe.objects.filter(pk=job.pk).update(**columns)


def test_a_job_that_is_to_be_cancelled_is_not_tried_again() -> None:
    job = in_state("running")
    fresh(job).cancel()

    job.retry_later(5, entry(job))

    row = fresh(job)
    assert (row.status, len(row.attempt_log)) == ("cancelled", 1)


# What a kind does when a job fails for good.


def mourner(done: str = "mourn", **columns: Any) -> Chain:
    Chain.objects.enqueue(done=done, **columns)
    (job,) = Chain.objects.claim(1, worker="w", lease_seconds=30)
    return job


def test_what_follows_from_a_failure_is_in_the_failing_transaction() -> None:
    job = mourner()

    with pytest.raises(RuntimeError), transaction.atomic():
        job.fail(entry(job))
        raise RuntimeError("the commit fails")
    assert (fresh(job).status, Probe.objects.count()) == ("running", 0)

    job.fail(entry(job))
    assert (fresh(job).status, Probe.objects.get().argument) == ("failed", "mourn: no luck")


def test_nothing_follows_from_an_end_that_is_no_failure_for_good() -> None:
    mourner().complete(0)
    for verb in ("retry_later", "release", "snooze", "cancelled"):
        job = mourner()
        WORKER_VERBS[verb](job)  # type: ignore[arg-type]
        Chain.objects.all().delete()
    job = mourner()
    Chain.objects.rescue(dead=["w"])
    assert (fresh(job).status, Probe.objects.count()) == ("pending", 0)


def test_a_lost_claim_has_no_follow_up_of_its_failure() -> None:
    zombie = mourner()
    age_lease(zombie)
    Chain.objects.rescue()

    with pytest.raises(LostClaim):
        zombie.fail(entry(zombie))

    assert Probe.objects.count() == 0


def test_a_rescue_without_attempts_left_is_a_failure_like_any_other() -> None:
    job = mourner(max_attempts=1)

    assert [one.pk for one in Chain.objects.rescue(dead=["w"])] == [job.pk]

    assert (fresh(job).status, fresh(job).suspect) == ("failed", True)
    assert Probe.objects.get().argument == "mourn: The worker died while running this."


def test_a_failing_follow_up_is_undone_and_the_job_has_failed_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = mourner("mourn badly")

    job.fail(entry(job))

    assert (fresh(job).status, fresh(job).error_message) == ("failed", "no luck")
    assert Probe.objects.count() == 0
    assert f"chain {job.pk}: what follows from its failure was left undone" in caplog.text


def test_a_database_that_is_away_in_a_follow_up_leaves_all_to_be_written_later() -> None:
    job = mourner("mourn in rain")

    with pytest.raises(OperationalError), transaction.atomic():
        job.fail(entry(job))

    assert (fresh(job).status, Probe.objects.count()) == ("running", 0)


# What a kind sets at the end.


def test_every_end_sets_what_the_kind_says_in_its_own_statement() -> None:
    ends: dict[str, Callable[[Letter], Any]] = {
        "completed": lambda job: job.complete(),
        "failed": lambda job: job.fail(entry(job)),
        "cancelled": lambda job: (job.cancel(), job.retry_later(5, entry(job))),
    }
    for status, end in ends.items():
        Letter.objects.enqueue(text="dear Ada")
        (job,) = Letter.objects.claim(1, worker="w", lease_seconds=30)
        end(job)
        assert (fresh(job).status, fresh(job).text) == (status, "")
        assert fresh(job).ended_as == status
    waiting = Letter.objects.enqueue(text="dear Ada")
    waiting.cancel()
    assert (fresh(waiting).text, fresh(waiting).ended_as) == ("", "cancelled")


def test_what_goes_back_keeps_what_an_end_would_take() -> None:
    for verb in ("retry_later", "release", "snooze"):
        Letter.objects.enqueue(text="dear Ada")
        (job,) = Letter.objects.claim(1, worker="w", lease_seconds=30)
        WORKER_VERBS[verb](job)  # type: ignore[arg-type]
        assert (fresh(job).text, fresh(job).ended_as) == ("dear Ada", "")
        Letter.objects.all().delete()


def test_a_lost_worker_ends_a_job_like_any_other_end() -> None:
    Letter.objects.enqueue(text="dear Ada", max_attempts=1)
    (job,) = Letter.objects.claim(1, worker="dead", lease_seconds=30)
    Letter.objects.rescue(dead=["dead"])
    assert (fresh(job).text, fresh(job).ended_as) == ("", "failed")


@pytest.mark.django_db(transaction=True)
def test_a_worker_sets_it_for_each_of_many() -> None:
    Letter.objects.enqueue_many({"text": text} for text in ["good", "bad"] * 10)
    run_due(Letter)
    assert set(Letter.objects.values_list("status", "ended_as", "text")) == {
        ("completed", "completed", ""),
        ("failed", "failed", ""),
    }
