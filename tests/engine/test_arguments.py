"""What cannot be stored is refused at the call, by name, and nothing is stored."""

import datetime
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.engine.arguments import check_json, check_text
from jobs.engine.models import TaskJob
from tests.kinds.models import Probe

LIMIT = 1000
FIVE_BEHIND = datetime.timezone(-datetime.timedelta(hours=5))


@pytest.mark.parametrize(
    ("value", "error", "place"),
    [
        ({"a": ["x", "nul \x00"]}, ValueError, "payload['a'][1]"),
        ({"a": "\ud800"}, ValueError, "payload['a']"),
        ({"\x00": 1}, ValueError, "a key of payload"),
        ({"a": float("nan")}, ValueError, "payload['a']"),
        ([1, float("-inf")], ValueError, "payload[1]"),
        (
            {"when": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)},
            TypeError,
            "payload['when']",
        ),
        ({"sum": Decimal("1.5")}, TypeError, "payload['sum']"),
        ({"job": Probe()}, TypeError, "payload['job'] is a Probe"),
        ({"set": {1, 2}}, TypeError, "payload['set']"),
        ({"bytes": b"x"}, TypeError, "payload['bytes']"),
        ({1: "x"}, TypeError, "key 1"),
        ([10**5000], ValueError, "payload[0] is a whole number of more than 4300 digits"),
        ({"big": "x" * LIMIT}, ValueError, "1000 are allowed"),
    ],
)
def test_what_json_does_not_bring_back_is_named(
    value: Any, error: type[Exception], place: str
) -> None:
    with pytest.raises(error) as caught:
        check_json(value, name="payload", max_bytes=LIMIT)
    assert place in str(caught.value)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")), inner
            )
        ),
    )
)
def test_what_is_let_through_comes_back_equal(value: Any) -> None:
    check_json(value, name="payload", max_bytes=10**9)
    assert json.loads(json.dumps(value)) == value


def test_what_is_nested_too_deeply_is_refused_by_name() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="payload is nested too deeply"):
        check_json(deep, name="payload", max_bytes=LIMIT)


def test_plain_text_is_let_through() -> None:
    check_text("naïve \U0001f600 text \t\n", name="argument")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "columns",
    [
        {"argument": "nul \x00"},
        {"argument": "\udcff"},
        {"argument": "x" * 201},
        {"unique_key": "k" * 301},
    ],
    ids=["nul", "surrogate", "long", "long key"],
)
def test_enqueue_refuses_text_that_a_column_does_not_take(columns: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(columns))):
        Probe.objects.enqueue(**columns)
    with pytest.raises(ValueError, match=next(iter(columns))):
        Probe.objects.enqueue_many([{}, columns])
    assert not Probe.objects.exists()


@pytest.mark.django_db
def test_enqueue_refuses_a_payload_of_five_megabytes() -> None:
    with pytest.raises(ValueError, match="payload takes"):
        TaskJob.objects.enqueue(task="x.y", payload={"args": ["x" * 5_000_000]})
    assert not TaskJob.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"argument": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)}, TypeError),
        ({"argument": Probe()}, TypeError),
        ({"argument": b"bytes"}, TypeError),
        ({"max_running_seconds": float("nan")}, ValueError),
        ({"max_running_seconds": float("inf")}, ValueError),
        ({"max_running_seconds": 0}, ValueError),
        ({"max_running_seconds": "60"}, TypeError),
        ({"max_attempts": 0}, ValueError),
        ({"max_attempts": -1}, ValueError),
        ({"max_attempts": 40_000}, ValueError),
        ({"max_attempts": True}, TypeError),
        ({"max_attempts": 10**5000}, ValueError),
        ({"max_running_seconds": 10**400}, ValueError),
        ({"run_at": datetime.datetime.max.replace(tzinfo=FIVE_BEHIND)}, ValueError),
        ({"max_attempts": 2.5}, TypeError),
        ({"max_attempts": None}, TypeError),
        ({"priority": 101}, ValueError),
        ({"priority": "high"}, TypeError),
        ({"lines": 2**31}, ValueError),
        ({"run_at": "2026-01-01"}, TypeError),
        ({"run_at": datetime.datetime(2026, 1, 1)}, ValueError),  # noqa: DTZ001
        ({"id": "no uuid"}, ValueError),
        ({"attempts": 7}, TypeError),
        ({"status": "completed"}, TypeError),
        ({"colour": "blue"}, TypeError),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else str(value),
)
def test_a_column_takes_no_value_that_only_looks_like_its_own(
    columns: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match=next(iter(columns))):
        Probe.objects.enqueue(**columns)
    assert not Probe.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("nul \x00", ValueError),
        ("\ud800", ValueError),
        (float("nan"), ValueError),
        ("x" * 5_000_000, ValueError),
        (datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), TypeError),
        (Probe(), TypeError),
    ],
    ids=["nul", "surrogate", "nan", "5 MB", "datetime", "model"],
)
@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_enqueue_names_the_argument_of_a_task_and_stores_nothing(
    value: Any, error: type[Exception], many: bool
) -> None:
    good = {"task": "x.y", "payload": {"args": [1]}}
    wrong = {"task": "x.y", "payload": {"args": [1], "kwargs": {"colour": value}}}
    place = r"payload takes" if len(str(value)) > 1_000_000 else r"payload\['kwargs'\]\['colour'\]"

    with pytest.raises(error, match=place):
        TaskJob.objects.enqueue_many([good, wrong]) if many else TaskJob.objects.enqueue(**wrong)

    assert not TaskJob.objects.exists()


@pytest.mark.django_db
def test_a_float_comes_back_with_its_digits_if_not_with_its_type() -> None:
    numbers = [0.1, 1.0, 1e16, 1e23, 6.02214076e23, -1e-20, 1.7976931348623157e308]
    job = TaskJob.objects.enqueue(task="x.y", payload={"args": numbers})
    job.refresh_from_db()
    assert [float(number) for number in job.args] == numbers
