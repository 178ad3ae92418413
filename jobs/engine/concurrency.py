"""How many jobs with the same key may run at the same time. Pure.

A job's `concurrency_key` holds any number of keys, each with its limit: `|user:5=2|host:a.org=2|`.
The limit stands in the row, so that each job and each task may have limits of its own.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from jobs.engine.arguments import shown

KEY_CHARACTERS = 300
"""How long the column is."""
MOST_AT_ONCE = 1_000_000


def keys(limits: Mapping[str, int]) -> str:
    """The column for {key: at most so many}; raises ValueError. Empty without limits."""
    for key, limit in limits.items():
        if not _is_key(key) or not _is_limit(limit):
            raise ValueError(
                f"A concurrency key is text without “|”, its limit from 1 to {MOST_AT_ONCE}; "
                f"not {shown(key)}: {shown(limit)}."
            )
    return "".join(f"|{key}={limit}" for key, limit in limits.items()) + "|" * bool(limits)


def _is_key(key: object) -> bool:
    return isinstance(key, str) and bool(key) and "|" not in key


def _is_limit(limit: object) -> bool:
    whole = isinstance(limit, int) and not isinstance(limit, bool)
    return whole and 1 <= limit <= MOST_AT_ONCE  # type: ignore[operator]  # it is an int


def parse(column: str) -> dict[str, int]:
    """{key: limit} of a job's column."""
    pairs = (entry.rpartition("=") for entry in column.split("|") if entry)
    return {key: int(limit) for key, _, limit in pairs if key and limit.isdecimal()}


class Room:
    """Which jobs may be started beside those that run with the columns `running`."""

    def __init__(self, running: Iterable[str]) -> None:
        self._counts = Counter(key for column in running for key in parse(column))
        self.full: set[str] = set()
        """The entries `|key=limit|` for which a job was turned away."""

    def admit(self, column: str) -> bool:
        """Whether a job with this column may start; counts it if so."""
        limits = parse(column)
        full = {f"|{key}={limit}|" for key, limit in limits.items() if self._counts[key] >= limit}
        self.full |= full
        if not full:
            self._counts.update(limits.keys())
        return not full
