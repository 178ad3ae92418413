"""What may be enqueued: values that both databases keep as they are. Pure."""

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

# NUL is refused by PostgreSQL, lone surrogates by UTF-8.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# What Python itself reads back, which the length of a JSON number is bounded for.
MOST_DIGITS = 4300
_TOO_LONG = 10**MOST_DIGITS


def check_text(text: str, *, name: str) -> None:
    """Raise ValueError, which names the argument, for text that a database refuses."""
    found = _UNSTORABLE.search(text)
    if found:
        what = "a NUL character" if found[0] == "\x00" else "a lone surrogate"
        raise ValueError(
            f"{name} holds {what} at position {found.start()}, which cannot be stored."
        )


def shown(value: object) -> str:
    """A value in the words of an error; numbers may have more digits than Python writes."""
    if isinstance(value, int) and abs(value) >= 10**40:
        return f"a whole number of {value.bit_length()} bits"
    return repr(value)


def has_moment(value: datetime) -> bool:
    """Whether the database can hold it: at the ends of the calendar a zone may lead beyond UTC."""
    try:
        value.astimezone(UTC)
    except OverflowError:
        return False
    return True


def check_json(value: Any, *, name: str, max_bytes: int) -> None:
    """Raise TypeError or ValueError, which names the place, for what JSON does not bring back."""
    try:
        _check_value(value, name)
        size = len(json.dumps(value, ensure_ascii=False).encode())
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply to be stored as JSON.") from None
    if size > max_bytes:
        raise ValueError(f"{name} takes {size} bytes as JSON; {max_bytes} are allowed.")


def _check_value(value: Any, name: str) -> None:
    match value:
        case str():
            check_text(value, name=name)
        case bool() | None:
            pass
        case int():
            if abs(value) >= _TOO_LONG:
                raise ValueError(
                    f"{name} is a whole number of more than {MOST_DIGITS} digits, which cannot be "
                    "stored as JSON."
                )
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{name} is {value}, which JSON does not have.")
        case Mapping():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise TypeError(f"{name} has the key {key!r}; keys must be text.")
                check_text(key, name=f"a key of {name}")
                _check_value(item, f"{name}[{key!r}]")
        case list() | tuple():
            for index, item in enumerate(value):
                _check_value(item, f"{name}[{index}]")
        case _:
            raise TypeError(f"{name} is a {type(value).__qualname__}, which JSON does not have.")
