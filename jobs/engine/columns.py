"""Which values a new job may be given: what a column does not bring back is refused at the call."""

import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db import models
from django.db.backends.base.operations import BaseDatabaseOperations
from django.utils import timezone

from jobs.engine.arguments import check_json, check_text, has_moment, shown
from jobs.engine.concurrency import keys, parse
from jobs.engine.conf import MOST_DAYS, config
from jobs.engine.row import URGENT, JobRow

WRITTEN_BY_THE_ENGINE = frozenset(
    "status rank due attempts progress_pct progress_step progress_done progress_total"
    " error_message attempt_log claim lease_until worker cancel_requested_at suspect log"
    " created_at started_at completed_at".split()
)
PRIORITIES = range(-URGENT, URGENT + 1)


def check_columns(kind: type[JobRow], columns: Mapping[str, Any]) -> None:
    """Raise TypeError or ValueError, which names the column, for a value that cannot be stored."""
    for name, value in columns.items():
        column = _column(kind, name)
        # An expression is the database's own matter, and so is what NULL means there.
        if hasattr(value, "resolve_expression"):
            continue
        if value is not None:
            _check_type(column, name, value)
        elif not column.null:
            raise TypeError(f"{name} must not be None.")
        _check_meaning(name, value)


def _column(kind: type[JobRow], name: str) -> Any:
    if name in WRITTEN_BY_THE_ENGINE:
        raise TypeError(f"{name} is written by the engine; a new job cannot be given one.")
    try:
        column = kind._meta.get_field(name)
    except FieldDoesNotExist:
        column = None
    if not isinstance(column, models.Field):
        raise TypeError(f"{kind.__name__} has no column {name}.")
    return column


def _check_type(column: Any, name: str, value: Any) -> None:
    match column:
        case models.CharField() | models.TextField():
            _check_text(column, name, value)
        case models.BooleanField():
            _demand(isinstance(value, bool), name, "True or False", value)
        case models.IntegerField():
            _check_whole(column, name, value)
        case models.FloatField():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            _demand(number, name, "a number", value)
            if not abs(value) <= sys.float_info.max:
                raise ValueError(f"{name} must be a finite number, not {shown(value)}.")
        case models.DateTimeField():
            _demand(isinstance(value, datetime), name, "a datetime", value)
            if timezone.is_naive(value):
                raise ValueError(f"{name} must be a datetime with a time zone, not {value}.")
            if not has_moment(value):
                raise ValueError(f"{name} is {value}, which is no moment in UTC.")
        case models.JSONField():
            check_json(value, name=name, max_bytes=config().max_payload_bytes)
        case models.UUIDField():
            try:
                column.to_python(value)
            except ValidationError as error:
                raise ValueError(f"{name}: {' '.join(error.messages)}") from None


def _check_text(column: Any, name: str, value: Any) -> None:
    _demand(isinstance(value, str), name, "text", value)
    check_text(value, name=name)
    if column.max_length is not None and len(value) > column.max_length:
        raise ValueError(f"{name} has {len(value)} characters; {column.max_length} are allowed.")


def _check_whole(column: Any, name: str, value: Any) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    _demand(whole, name, "a whole number", value)
    # The narrowest of what the databases take, so that both take the same.
    ranges = BaseDatabaseOperations.integer_field_ranges
    least, most = ranges[column.get_internal_type()]
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least} to {most}, not {shown(value)}.")


def _check_meaning(name: str, value: Any) -> None:
    """What the engine's own columns demand beyond their type."""
    if name == "concurrency_key" and keys(parse(value)) != value:
        raise ValueError("concurrency_key is made by jobs.engine.concurrency.keys({key: limit}).")
    if name == "max_attempts" and value < 1:
        raise ValueError(f"max_attempts must be from 1, not {value}.")
    if name == "max_running_seconds" and value <= 0:
        raise ValueError(f"max_running_seconds must be above 0, not {value}.")
    if name == "priority" and value not in PRIORITIES:
        raise ValueError(f"priority must be from {PRIORITIES[0]} to {PRIORITIES[-1]}, not {value}.")
    if name == "keep_days" and value is not None and not 0 < value <= MOST_DAYS:
        raise ValueError(f"keep_days must be above 0 and at most {MOST_DAYS}, not {value}.")


def _demand(right: bool, name: str, what: str, value: Any) -> None:
    if not right:
        raise TypeError(f"{name} must be {what}, not a {type(value).__qualname__}.")
