"""The log of the attempts that did not complete. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

Entry = Mapping[str, Any]

HANDED_BACK = ("released", "snoozed")
"""Outcomes of attempts that do not count: the next one has the same number."""


def with_entry(log: Sequence[Entry], entry: Entry) -> list[Entry]:
    """`log` and one entry more.

    A job may be handed back any number of times, as one that snoozes until something is there. So
    equal ones in a row are one entry, from the first start to the last end, with their number in
    `times`.
    """
    last = log[-1] if log else {}
    same = all(last.get(name) == entry[name] for name in ("number", "outcome"))
    if same and entry["outcome"] in HANDED_BACK:
        times = last.get("times", 1) + 1
        return [*log[:-1], {**entry, "started_at": last["started_at"], "times": times}]
    return [*log, dict(entry)]


def spent(log: Sequence[Entry], number: int) -> list[Entry]:
    """The entries of the last `number` attempts that count; older ones were before a Retry."""
    counted = [entry for entry in log if entry["outcome"] not in HANDED_BACK]
    return counted[len(counted) - number :] if number > 0 else []
