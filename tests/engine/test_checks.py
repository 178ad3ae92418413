"""Wrong settings and wrong kinds are told before anything runs."""

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from jobs.engine import checks
from jobs.engine.conf import load, parse_seats
from tests.kinds.models import Chain, Ledger, Probe


def found(settings: Any, **jobs: Any) -> set[str]:
    settings.JOBS = {**settings.JOBS, **jobs}
    return {str(message.id) for message in checks.check_settings()}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"LEASE": 5}, "JOBS['LEASE'] is unknown"),
        ({"LEASE_SECONDS": "30"}, "must be a number"),
        ({"LEASE_SECONDS": 0}, "above 0"),
        ({"MAX_ATTEMPTS": 1.5}, "whole number"),
        ({"MAX_ATTEMPTS": True}, "whole number"),
        ({"MAX_ATTEMPTS": 40_000}, "a whole number above 0 and at most 32767, not 40000"),
        ({"MAX_PAYLOAD_BYTES": 10**5000}, "a whole number above 0"),
        ({"GRACE_SECONDS": float("inf")}, "a number above 0, not inf"),
        ({"RETENTION_DAYS": 36_501}, "above 0 and at most 36500, not 36501"),
        ({"RETENTION_DAYS": float("nan")}, "above 0 and at most 36500, not nan"),
        ({"SEATS": "import"}, "kind=number"),
        ({"SEATS": {"import": 0}}, "from 1"),
        ({"SEATS": 4}, "JOBS['SEATS']"),
        ({"DATABASE": "elsewhere"}, "not in DATABASES"),
        ({"LEASE_SECONDS": 5, "HEARTBEAT_SECONDS": 4}, "at most half"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value,
)
def test_a_wrong_setting_is_told_in_a_sentence(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ImproperlyConfigured) as caught:
        load(given)
    assert words in str(caught.value)


def test_seats_are_read_as_they_are_written() -> None:
    assert parse_seats(" import=4, email=8,") == {"import": 4, "email": 8}
    assert parse_seats({"import": 2}) == {"import": 2}


@pytest.mark.django_db
def test_a_sound_project_hears_nothing(settings: Any) -> None:
    assert found(settings, LEASE_SECONDS=60) == set()
    assert list(checks.check_kinds()) == []


@pytest.mark.django_db
def test_each_weakness_has_its_word(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    options = connections["default"].settings_dict["OPTIONS"]
    assert found(settings, UNKNOWN=1) == {"jobs_engine.E001"}
    settings.JOBS = {}
    assert found(settings, SEATS={"nothing": 1}) == {"jobs_engine.W001"}
    settings.JOBS = {}
    monkeypatch.setitem(options, "pool", {"max_size": 2})
    assert found(settings) == {"jobs_engine.W002"}
    monkeypatch.delitem(options, "pool")
    monkeypatch.setattr(Ledger, "defaults", {"max_running_seconds": 11})
    assert found(settings) == {"jobs_engine.W005"}
    monkeypatch.setattr(Ledger, "defaults", {"max_running_seconds": 10})
    settings.ASGI_APPLICATION = None
    assert found(settings) == {"jobs_engine.W006"}


@pytest.mark.django_db
def test_sqlite_needs_immediate_transactions_and_a_file() -> None:
    assert [m.id for m in checks._sqlite("default", "/data/db.sqlite3", {})] == ["jobs_engine.W003"]
    memory = checks._sqlite(
        "default", "file:memorydb?mode=memory", {"transaction_mode": "IMMEDIATE"}
    )
    assert [m.id for m in memory] == ["jobs_engine.W004"]


def test_a_kind_without_the_engines_rules_or_with_a_taken_name_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Probe, "kind", "chain")
    assert {m.id for m in checks.check_kinds()} == {"jobs_engine.E003"}
    monkeypatch.setattr(Probe, "kind", "with a blank")
    assert {m.id for m in checks.check_kinds()} == {"jobs_engine.E002"}
    monkeypatch.setattr(Probe, "kind", "probe")
    monkeypatch.setattr(Probe, "retention_days", 1e10)
    assert {m.id for m in checks.check_kinds()} == {"jobs_engine.E008"}
    monkeypatch.setattr(Probe, "retention_days", None)
    monkeypatch.setattr(Chain._meta, "constraints", [])
    (fault,) = checks.check_kinds()
    assert fault.id == "jobs_engine.E004"
    assert "kinds_chain_claim" in fault.msg
