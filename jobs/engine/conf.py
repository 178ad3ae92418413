"""The engine's settings: the Django setting JOBS over the defaults below."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from jobs.engine.arguments import shown

DEFAULT_SEATS = {"import": 4, "email": 8, "task": 4}
SEATS_OF_OTHERS = 2
MOST_ATTEMPTS = 32767
"""What the column holds in every database."""
MOST_DAYS = 36_500
"""The longest that an ended job is kept: further back the databases' calendars end."""
MOST = {"MAX_ATTEMPTS": MOST_ATTEMPTS, "RETENTION_DAYS": MOST_DAYS}


@dataclass(frozen=True, slots=True)
class Config:
    """Seconds are of the database's clock where rows are concerned, else of the process."""

    seats: Mapping[str, int] = field(default_factory=dict)
    lease_seconds: float = 30
    heartbeat_seconds: float = 10
    poll_seconds: float = 1
    grace_seconds: float = 30
    retention_days: float = 7
    max_attempts: int = 3
    max_running_seconds: float = 120
    backoff_base: float = 5
    backoff_cap_seconds: float = 3600
    max_abandoned: int = 2
    database: str = "default"
    max_payload_bytes: int = 1024 * 1024

    def seats_of(self, kind: str) -> int:
        """How many jobs of a kind one process runs at the same time."""
        return self.seats.get(kind, DEFAULT_SEATS.get(kind, SEATS_OF_OTHERS))


def parse_seats(given: str | Mapping[str, int]) -> dict[str, int]:
    """`"import=4,email=8"` or a mapping, as a dict; raises ValueError with a sentence."""
    if isinstance(given, str):
        pairs = [part.partition("=")[::2] for part in given.split(",") if part.strip()]
    else:
        pairs = [(str(name), str(number)) for name, number in given.items()]
    seats = {}
    for name, number in pairs:
        if not name.strip() or not number.strip().isdigit() or int(number) < 1:
            raise ValueError(
                f"Seats are written kind=number with a number from 1, as in import=4,email=8; "
                f"not {name.strip()}={number.strip()}."
            )
        seats[name.strip()] = int(number)
    return seats


def load(given: Mapping[str, Any]) -> Config:
    """Check JOBS and lay it over the defaults; raises ImproperlyConfigured with a sentence."""
    known = {entry.name.upper(): entry for entry in fields(Config)}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise ImproperlyConfigured(
                f"JOBS[{name!r}] is unknown. Known keys: {', '.join(known)}."
            )
        values[name.lower()] = _checked(name, value)
    config = Config(**values)
    if config.heartbeat_seconds * 2 > config.lease_seconds:
        raise ImproperlyConfigured(
            "JOBS['HEARTBEAT_SECONDS'] must be at most half of LEASE_SECONDS, "
            "so that one late heartbeat loses no lease."
        )
    return config


def _checked(name: str, value: Any) -> Any:
    if name == "SEATS":
        try:
            return parse_seats(value)
        except (ValueError, AttributeError) as error:
            raise ImproperlyConfigured(f"JOBS['SEATS']: {error}") from None
    if name == "DATABASE":
        if value not in settings.DATABASES:
            raise ImproperlyConfigured(
                f"JOBS['DATABASE'] names {value!r}, which is not in DATABASES."
            )
        return value
    whole = name in {"MAX_ATTEMPTS", "MAX_ABANDONED", "MAX_PAYLOAD_BYTES"}
    right = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    most = MOST.get(name, sys.float_info.max)
    if not right or not 0 < value <= most:
        kind = "whole number" if whole else "number"
        end = f" and at most {most}" if name in MOST else ""
        raise ImproperlyConfigured(
            f"JOBS[{name!r}] must be a {kind} above 0{end}, not {shown(value)}."
        )
    return value


@cache
def config() -> Config:
    """The settings in force."""
    return load(getattr(settings, "JOBS", {}))


def _forget(*, setting: str, **_kwargs: Any) -> None:
    if setting == "JOBS":
        config.cache_clear()


setting_changed.connect(_forget)
