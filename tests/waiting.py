"""Waiting on conditions, never for a length of time."""

import time
from collections.abc import Callable
from typing import Any


def wait_for(condition: Callable[[], Any], *, seconds: float = 20) -> Any:
    """The first true value of `condition`; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {condition}")
