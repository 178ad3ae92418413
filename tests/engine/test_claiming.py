"""Nothing is claimed twice, and a claim stays an index scan."""

import threading
from typing import Any

import pytest
from django.db import connection, connections, transaction

from jobs.engine.lifecycle import Job
from tests.kinds.models import Probe


def in_threads(number: int, work: Any) -> list[Any]:
    """Run `work` in threads that begin at the same moment; returns what each returned."""
    barrier, results = threading.Barrier(number), []

    def body() -> None:
        try:
            barrier.wait(10)
            results.append(work())
        finally:
            connections.close_all()

    threads = [threading.Thread(target=body) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == number
    return results


@pytest.mark.django_db(transaction=True)
def test_eight_threads_never_claim_the_same_job() -> None:
    Probe.objects.enqueue_many({} for _ in range(200))

    def claim_all() -> list[Any]:
        mine = []
        while jobs := Probe.objects.claim(3, worker="w", lease_seconds=30):
            mine += [job.pk for job in jobs]
        return mine

    claimed = [pk for mine in in_threads(8, claim_all) for pk in mine]

    assert len(claimed) == len(set(claimed)) == 200


@pytest.mark.django_db(transaction=True)
def test_eight_double_clicks_make_one_job() -> None:
    pks = in_threads(8, lambda: Probe.objects.enqueue(unique_key="one").pk)

    assert len(set(pks)) == 1
    assert Probe.objects.count() == 1


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_job_that_another_transaction_holds_is_skipped_not_waited_for() -> None:
    held, free = Probe.objects.enqueue(), Probe.objects.enqueue()
    claimed: list[Any] = []

    def claim() -> None:
        claimed.extend(Probe.objects.claim(2, worker="w", lease_seconds=30))
        connections.close_all()

    with transaction.atomic():
        Probe.objects.select_for_update().get(pk=held.pk)
        thread = threading.Thread(target=claim)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()

    assert [job.pk for job in claimed] == [free.pk]


@pytest.mark.django_db
@pytest.mark.parametrize("kind", Job.kinds(), ids=lambda kind: kind.kind)
def test_a_claim_reads_its_index_in_order_and_sorts_nothing(kind: type[Job]) -> None:
    """With a backlog of due and future rows, on both databases."""
    more = {"probe": {}, "task": {"task": "operator.neg"}}.get(kind.kind)
    if more is not None:
        kind.objects.enqueue_many({"priority": number % 3, **more} for number in range(3000))
    table = kind._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {table}")
        if connection.vendor == "postgresql" and more is None:
            cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")

    plan = kind.objects.ready()[:4].explain()

    assert f"{table}_ready" in plan, plan
    assert "Sort" not in plan
    assert "TEMP B-TREE" not in plan


@pytest.mark.django_db
@pytest.mark.parametrize("kind", Job.kinds(), ids=lambda kind: kind.kind)
def test_no_index_holds_a_column_that_heartbeats_or_reports_write(kind: type[Job]) -> None:
    written = {"lease_until", *kind.blank_progress()}
    for index in kind._meta.indexes:
        assert not written & {name.lstrip("-") for name in index.fields}, index.name
