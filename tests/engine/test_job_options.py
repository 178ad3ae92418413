"""Options of a task: what is refused where it is written, what stands over what, what they do."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now
from django.tasks import task, task_backends
from django.tasks.exceptions import InvalidTask
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from jobs.engine.concurrency import parse
from jobs.engine.models import TaskJob
from jobs.engine.options import JobOptions
from jobs.engine.retention import delete_old
from jobs.engine.retry import backoff
from jobs.engine.schedules import database_now
from jobs.engine.tasks import job_options
from jobs.engine.testing import run_pending
from tests.engine.task_rows import row
from tests.kinds import tasks
from tests.kinds.models import Effect, Probe
from tests.waiting import wait_for
from tests.workers import run_due

BACKEND = "jobs.engine.backend.JobsBackend"


def yearly(year: int, *rest: int, host: str = "", **more: int) -> None: ...


async def yearly_async(year: int) -> None: ...


def with_context(context: Any, year: int) -> None: ...


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"max_attempts": 0}, ValueError, "max_attempts must be a whole number from 1 to 32767, not 0"),
    ({"max_attempts": 40_000}, ValueError, "max_attempts must be"),
    ({"max_attempts": "3"}, TypeError, "max_attempts must be a whole number.*not '3'"),
    ({"max_attempts": True}, TypeError, "max_attempts must be"),
    ({"max_attempts": 2.0}, TypeError, "max_attempts must be"),
    ({"backoff": -1}, ValueError, "backoff must be .* or a function of the attempt"),
    ({"backoff": "soon"}, TypeError, "backoff must be"),
    ({"max_running_seconds": 0}, ValueError, "max_running_seconds must be a number above 0"),
    ({"max_running_seconds": float("nan")}, ValueError, "max_running_seconds must be"),
    ({"max_running_seconds": float("inf")}, ValueError, "max_running_seconds must be"),
    ({"max_running_seconds": False}, TypeError, "max_running_seconds must be"),
    ({"unique": 1}, TypeError, "unique must be True, text such as 'report-{year}', or a function"),
    ({"unique": ""}, ValueError, "unique must be"),
    ({"unique": "report-{yaer}"}, ValueError, "unique: .* names {yaer}, which is no argument of"),
    ({"unique": "report-{}"}, ValueError, "unique: .* names {}, which is no argument"),
    ({"unique": "report-{0}"}, ValueError, "unique: .* names .0., which is no argument"),
    ({"unique": "report-{year"}, ValueError, "unique: 'report-{year' is no format"),
    ({"concurrency": "host"}, TypeError, "concurrency must be .key, limit. such as"),
    ({"concurrency": ("host", 0)}, ValueError, "concurrency: A concurrency key is text without"),
    ({"concurrency": ("a|b", 1)}, ValueError, "concurrency: A concurrency key is text without"),
    ({"concurrency": ("host", "2")}, TypeError, "concurrency must be"),
    ({"concurrency": ("host", True)}, TypeError, "concurrency must be"),
    ({"concurrency": ("host", 2, 3)}, TypeError, "concurrency must be"),
    ({"concurrency": ("host:{hots}", 2)}, ValueError, "concurrency: .* names {hots}"),
    ({"unique": "{year!z}"}, ValueError, "is no format: .*conversion"),
    ({"unique": "{year:{width}}"}, ValueError, "names {width}, which is no argument of report"),
    ({"unique": "{year:{year:{year}}}"}, ValueError, "is no format: braces stand in braces"),
    ({"concurrency": ("h" * 300, 1)}, ValueError, "concurrency: .* at most 300 characters"),
    ({"concurrency": ("h" * 297 + "{year}", 1)}, ValueError, "concurrency: .* at most 300"),
    ({"concurrency": ("host", 10**400)}, ValueError, "its limit from 1 to 1000000"),
    ({"max_attempts": 10**5000}, ValueError, "max_attempts must be .* not a whole number of"),
    ({"max_running_seconds": 10**400}, ValueError, "max_running_seconds must be"),
    ({"retention": 10**400}, ValueError, "retention must be"),
    ({"backoff": 1e200}, ValueError, "backoff must be a number above 0 and at most 2592000"),
    ({"backoff": 10**400}, ValueError, "backoff must be a number above 0 and at most 2592000"),
    ({"retention": 0}, ValueError, "retention must be a number above 0"),
    ({"retention": 36_501}, ValueError, "retention must be a number above 0 and at most 36500"),
    ({"retention": "week"}, TypeError, "retention must be"),
    ({"atomic": 1}, TypeError, "atomic must be True or False, not 1"),
    (
        {"atomic": True, "max_running_seconds": 11},
        ValueError,
        r"max_running_seconds of an atomic task is at most 10 \(a third of the lease\), not 11",
    ),
]


def report(year: int, *, host: str = "") -> None: ...


@pytest.mark.parametrize(("options", "error", "words"), WRONG)
def test_a_wrong_option_is_refused_where_it_is_written(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        job_options(**options)(report)
    assert not hasattr(report, "job_options")
    with pytest.raises(error, match=words):
        task(**options)(report)


def test_an_unknown_option_is_told_with_the_known_ones() -> None:
    with pytest.raises(TypeError, match="@job_options has no option retries"):
        job_options(retries=3)
    with pytest.raises(TypeError, match="retries"):
        task(retries=3)(report)


def test_a_coroutine_cannot_be_atomic() -> None:
    for declare in (job_options(atomic=True), task(atomic=True)):
        with pytest.raises(TypeError, match="atomic: yearly_async is a coroutine function"):
            declare(yearly_async)
    # Nor by the alias, whose options all its tasks have.
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "OPTIONS": {"atomic": True}}}):
        with pytest.raises(InvalidTask, match="atomic: yearly_async is a coroutine function"):
            task(yearly_async)
        assert task(atomic=False)(yearly_async).atomic is False


def test_the_decorators_stand_in_one_order_and_options_have_names() -> None:
    with pytest.raises(TypeError, match="on the task report: write it under @task"):
        job_options(max_attempts=3)(task(report))  # type: ignore[type-var]
    with pytest.raises(TypeError, match="takes options by name"):
        job_options(report)
    with pytest.raises(TypeError, match="stands on a function"):
        job_options(max_attempts=3)(len)


def test_the_decorator_returns_the_function_itself() -> None:
    assert job_options()(yearly) is yearly
    assert yearly.job_options == JobOptions()  # type: ignore[attr-defined]


def test_the_context_is_no_argument_of_a_key() -> None:
    options = job_options(unique="{context}-{year}")
    with pytest.raises(ValueError, match=r"names {context}, which is no argument"):
        task(takes_context=True)(options(with_context))
    assert task(takes_context=True)(job_options(unique="{year}")(with_context)).takes_context


def test_a_function_that_takes_any_name_lets_any_name_pass() -> None:
    assert task(unique="{year} {anything}")(yearly).unique == "{year} {anything}"


# What they do.


@pytest.mark.django_db
def test_options_become_columns() -> None:
    job = row(tasks.report.enqueue(2026, host="example.org"))
    assert (job.max_attempts, job.max_running_seconds, job.keep_days) == (5, 40, 90)
    assert job.unique_key == "tests.kinds.tasks.report:report-2026"
    assert parse(job.concurrency_key) == {"host:example.org": 2}
    assert parse(row(tasks.report.enqueue(2027)).concurrency_key) == {"host:here": 2}


@pytest.mark.django_db
def test_keywords_stand_over_the_decorator_over_the_alias_over_the_settings(
    jobs_settings: Callable[..., None],
) -> None:
    jobs_settings(MAX_ATTEMPTS=2, MAX_RUNNING_SECONDS=55)
    alias = {"BACKEND": BACKEND, "OPTIONS": {"max_attempts": 8, "retention": 9}}
    with override_settings(TASKS={"default": alias}):
        by_keyword = row(tasks.by_keyword.enqueue())
        by_decorator = row(tasks.report.enqueue(1))
        by_alias = row(tasks.noop.enqueue())
    by_settings = row(tasks.noop.enqueue())

    def told(job: TaskJob) -> tuple[Any, ...]:
        return job.max_attempts, job.max_running_seconds, job.keep_days

    assert told(by_keyword) == (4, 33, 2)
    assert told(by_decorator) == (5, 40, 90)
    assert told(by_alias) == (8, 55, 9)
    assert told(by_settings) == (2, 55, None)


@pytest.mark.django_db
def test_an_atomic_task_has_a_third_of_the_lease_unless_it_states_less() -> None:
    assert row(tasks.write_and_return.enqueue("x")).max_running_seconds == 10
    alias = {"BACKEND": BACKEND, "OPTIONS": {"max_running_seconds": 100}}
    with override_settings(TASKS={"default": alias}):
        assert row(tasks.write_and_return.enqueue("y")).max_running_seconds == 10
        assert row(tasks.noop.enqueue()).max_running_seconds == 100


@pytest.mark.django_db
def test_a_unique_task_is_enqueued_once_as_long_as_it_is_not_over() -> None:
    first = tasks.once.enqueue(1)
    again = [
        tasks.once.enqueue(1),
        tasks.once.enqueue(a=1),
        tasks.once.enqueue(1, 2),
        tasks.once.enqueue(b=2, a=1),
    ]
    assert {result.id for result in again} == {first.id}
    assert [result.duplicate for result in (first, *again)] == [False, *[True] * 4]
    others = [tasks.once.enqueue(2), tasks.once.enqueue(1, 2, 3), tasks.once.enqueue(1, x=1)]
    assert len({first.id, *(result.id for result in others)}) == 4
    run_pending(TaskJob)
    assert tasks.once.enqueue(1).id != first.id


@pytest.mark.django_db
def test_a_key_of_words_or_of_a_function_counts_only_what_it_names() -> None:
    first = tasks.report.enqueue(2026, host="a")
    again = tasks.report.enqueue(2026, host="b")
    assert (again.id, again.duplicate, again.kwargs) == (first.id, True, {"host": "a"})
    assert tasks.keyed.enqueue(1).id == tasks.keyed.enqueue(1, x=2).id
    assert parse(row(tasks.keyed.enqueue(1)).concurrency_key) == {"a:1": 1, "all": 3}


@pytest.mark.django_db
def test_equal_words_of_two_tasks_are_two_keys_and_long_ones_fit() -> None:
    named = task(unique="{text}")(tasks.fail.func)
    other = task(unique=lambda text: text)(tasks.fail_for_good.func)
    del other
    long = "x" * 5_000
    first, again = named.enqueue(long), named.enqueue(long)
    differs = named.enqueue(long + "y")
    assert first.id == again.id != differs.id
    assert len(row(first).unique_key or "") == 300
    assert tasks.report.enqueue(1).id != tasks.keyed.enqueue(1).id


@pytest.mark.django_db
def test_many_calls_of_a_unique_task_find_their_equals() -> None:
    first = tasks.once.enqueue(1)
    results = tasks.once.enqueue_many([((1,), {}), ((2,), {}), ((2, 2), {})])
    assert results[0].id == first.id
    assert results[1].id == results[2].id
    assert [result.duplicate for result in results] == [True, False, True]
    assert results[2].enqueued_at == results[1].enqueued_at is not None
    assert TaskJob.objects.count() == 2
    assert all(result.duplicate for result in tasks.once.enqueue_many([((1,), {}), ((2,), {})]))


@pytest.mark.django_db
def test_many_calls_of_a_unique_task_are_a_few_statements_for_each_thousand() -> None:
    for taken in (0, 1, 7, 2_400):
        tasks.once.enqueue(taken)
    with CaptureQueriesContext(connection) as queries:
        results = tasks.once.enqueue_many([((n % 2_500,), {}) for n in range(3_000)])
    # For each thousand one SELECT, and one INSERT with its savepoint; the whole has a savepoint too.
    assert len(queries) <= 3 * 4 + 3
    assert [r.args for r in results] == [[n % 2_500] for n in range(3_000)]
    assert [n for n in range(2_500) if results[n].duplicate] == [0, 1, 7, 2_400]
    assert all(result.duplicate for result in results[2_500:])
    assert {r.id for r in results[2_500:]} == {r.id for r in results[:500]}
    assert TaskJob.objects.count() == 2_500


@pytest.mark.django_db(transaction=True)
def test_many_callers_at_once_make_one_job_of_each_key() -> None:
    ready = Barrier(4)

    def enqueue(caller: int) -> set[str]:
        numbers = range(300) if caller % 2 else range(299, -1, -1)
        ready.wait(20)
        try:
            return {result.id for result in tasks.once.enqueue_many([((n,), {}) for n in numbers])}
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as callers:
        first, *others = callers.map(enqueue, range(4))

    assert TaskJob.objects.count() == len(first) == 300
    assert others == [first] * 3


@pytest.mark.django_db
def test_an_equal_job_is_found_by_its_key() -> None:
    with CaptureQueriesContext(connection) as queries:
        tasks.once.enqueue(1)
        tasks.once.enqueue(1)
    (sql,) = [q["sql"] for q in queries if q["sql"].startswith('SELECT "')]
    TaskJob.objects.enqueue_many({"task": "operator.neg"} for _ in range(2_000))
    with connection.cursor() as cursor:
        explain = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
        cursor.execute("ANALYZE")
        cursor.execute(f"{explain} {sql}")
        plan = str(cursor.fetchall())
    assert "jobs_engine_taskjob_key" in plan


@pytest.mark.django_db(transaction=True)
def test_many_calls_of_a_unique_task_are_all_or_none() -> None:
    with pytest.raises(TypeError, match="args"):
        tasks.once.enqueue_many([((1,), {}), ((object(),), {})])
    with pytest.raises(KeyError), transaction.atomic():
        tasks.once.enqueue_many([((1,), {}), ((2,), {})])
        raise KeyError
    assert not TaskJob.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("options", "args", "error", "words"),
    [
        ({"unique": "{year}"}, [], TypeError, "report: missing a required argument: 'year'"),
        ({"unique": lambda: "x"}, [1], ValueError, "unique of .*report cannot be made: TypeError"),
        ({"unique": lambda _year: 3}, [1], TypeError, "unique of .*report must return text, not 3"),
        ({"unique": "{year.name}"}, [1], ValueError, "cannot be filled: AttributeError"),
        ({"unique": "{year:%d}"}, ["x"], ValueError, "cannot be filled: ValueError"),
        ({"concurrency": ("{year}", 1)}, ["a|b"], ValueError, "report: A concurrency key is text"),
        ({"concurrency": lambda _year: 3}, [1], TypeError, r"must return {key: limit}, not 3"),
        ({"concurrency": lambda _y: {"a": 0}}, [1], ValueError, "its limit from 1"),
        ({"concurrency": lambda _y: {"a" * 400: 1}}, [1], ValueError, "report: its keys have 404"),
        ({"concurrency": ("{year}", 1)}, ["a" * 297], ValueError, "its keys have 301 characters"),
        ({"concurrency": lambda _y: {"a": True}}, [1], TypeError, r"must return {key: limit}"),
        ({"concurrency": lambda _y: {"a": 10**5000}}, [1], ValueError, "limit from 1 to 1000000"),
    ],
)
def test_a_key_that_cannot_be_made_is_told_at_the_call(
    options: dict[str, Any], args: list[Any], error: type[Exception], words: str
) -> None:
    declared = task(**options)(tasks.report.func)
    with pytest.raises(error, match=words):
        declared.enqueue(*args)
    assert not TaskJob.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_concurrency_keys_hold_over_tasks(tmp_path: Any, worker: Callable[..., Any]) -> None:
    limited = task(takes_context=True, concurrency=("path:{path}", 1))(tasks.wait_politely_at.func)
    results = limited.enqueue_many([((str(tmp_path / "go"),), {}) for _ in range(3)])
    worker(TaskJob)
    for number in (1, 2, 3):
        wait_for(lambda number=number: Effect.objects.count() == number)
        running = TaskJob.objects.filter(status="running")
        assert running.count() == 1
        (tmp_path / "go").touch()
        wait_for(lambda number=number: TaskJob.objects.filter(status="completed").count() >= number)
    assert len(results) == 3


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "args", "least", "most"),
    [
        ("fail", [], 4, 6),
        ("patient", [], 50, 70),
        ("by_keyword_functions", [], 9, 12),
        ("odd_backoff", [], 4, 6),
    ],
)
def test_each_task_has_its_own_back_off(
    name: str, args: list[Any], least: float, most: float
) -> None:
    result = getattr(tasks, name).enqueue(*args)
    run_pending(TaskJob)
    job = row(result)
    assert job.status == "pending"
    assert least < (job.run_at - database_now()).total_seconds() < most


def test_a_back_off_has_an_end_however_large_its_base() -> None:
    for base in (1.0001, 5, 1e200, 1.7976931348623157e308):
        for attempt in (1, 2, 40, 32_767):
            assert 0 < backoff(attempt, base=base, cap=3600, jitter=0) <= 3600
    assert [backoff(n, base=5, cap=100, jitter=0) for n in (1, 2, 3)] == [5, 25, 100]
    assert backoff(9, base=0.5, cap=100, jitter=0) == 0.5


def test_a_width_that_is_an_argument_fills_a_key() -> None:
    assert task(unique="{year:{host}}")(report).unique == "{year:{host}}"


@pytest.mark.django_db
def test_a_back_off_is_given_the_number_of_the_attempt() -> None:
    backed = task(backoff=lambda attempt: attempt * 1000)(tasks.fail.func)
    assert callable(backed.backoff)
    job = TaskJob(task="tests.kinds.tasks.report", attempts=2)
    assert (job.backoff(1), job.backoff(2)) == (1000, 2000)


@pytest.mark.django_db(transaction=True)
def test_a_time_limit_of_a_task_holds() -> None:
    result = task(takes_context=True, max_running_seconds=0.3, max_attempts=1)(
        tasks.wait_politely.func
    ).enqueue()
    run_due(TaskJob)
    job = row(result)
    assert (job.status, job.attempt_log[0]["outcome"]) == ("failed", "timed out")


@pytest.mark.django_db
def test_each_row_is_kept_as_long_as_it_says() -> None:
    short = task(retention=2)(tasks.add.func)
    long = task(retention=90)(tasks.add.func)
    rows = {
        (name, age): row(declared.enqueue(1))
        for name, declared in {"short": short, "usual": tasks.add, "long": long}.items()
        for age in (1, 3, 8, 91)
    }
    waits = tasks.add.enqueue(1)
    TaskJob.objects.filter(pk=waits.id).update(due=False)
    run_pending(TaskJob)
    for (_name, age), job in rows.items():
        TaskJob.objects.filter(pk=job.pk).update(completed_at=Now() - timedelta(days=age))

    assert delete_old(TaskJob) == 6

    left = {key for key, job in rows.items() if TaskJob.objects.filter(pk=job.pk).exists()}
    assert left == {
        *(("short", 1), ("usual", 1), ("usual", 3)),
        *(("long", 1), ("long", 3), ("long", 8)),
    }
    assert TaskJob.objects.filter(pk=waits.id).exists()


@pytest.mark.django_db
def test_old_rows_go_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.engine.retention.BATCH", 2)
    task(retention=1)(tasks.noop.func).enqueue_many([((), {})] * 5)
    tasks.noop.enqueue_many([((), {})] * 5)
    run_pending(TaskJob)
    TaskJob.objects.update(completed_at=Now() - timedelta(days=8))
    assert delete_old(TaskJob) == 10


def test_options_are_checked_by_one_class_for_all_who_give_them() -> None:
    backend = task_backends["patient"]
    assert backend.job_options == JobOptions(max_attempts=7, backoff=60, retention=30)
    assert JobOptions(unique=False).over(JobOptions(unique=True)).unique is False
    assert Probe.retention_column is None
