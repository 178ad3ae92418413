"""What `git fetch --progress` says, as steps of one bar that never goes back. Pure.

The text behind `remote:` is the server's own and may be forged, so it moves no more than the
first tenth; only lines that git itself wrote, which have no prefix, count as phases.
"""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from django.utils.translation import gettext_noop

MAX_LINE = 4096
KEPT_LINES = 20


@dataclass(frozen=True)
class Step:
    """How far an import is. `key` is for programs, `phrase` for people (translate it to show it)."""

    percent: int
    key: str
    phrase: str
    done: int | None = None
    total: int | None = None
    received_bytes: int | None = None
    bytes_per_second: int | None = None


@dataclass(frozen=True)
class Phase:
    """A part of the bar."""

    key: str
    phrase: str
    start: int
    end: int

    def step(self, *, done: int | None = None, total: int | None = None) -> Step:
        return Step(self._percent(done, total), self.key, self.phrase, done, total)

    def _percent(self, done: int | None, total: int | None) -> int:
        if done is None or not total:
            return self.start
        return self.start + (self.end - self.start) * min(done, total) // total


CONNECTING = Phase("connecting", gettext_noop("Connecting"), 0, 2)
PREPARING = Phase("preparing", gettext_noop("The server is preparing"), 2, 3)
COUNTING = Phase("counting", gettext_noop("The server is counting objects"), 3, 6)
COMPRESSING = Phase("compressing", gettext_noop("The server is compressing objects"), 6, 10)
RECEIVING = Phase("receiving", gettext_noop("Receiving objects"), 10, 75)
RESOLVING = Phase("resolving", gettext_noop("Resolving deltas"), 75, 95)
CHECKING = Phase("checking", gettext_noop("Checking that nothing is missing"), 95, 96)
CHOOSING = Phase("choosing", gettext_noop("Choosing the default branch"), 96, 97)
INDEXING = Phase("indexing", gettext_noop("Preparing the history for reading"), 97, 98)
MEASURING = Phase("measuring", gettext_noop("Measuring"), 98, 99)

_REMOTE = {
    b"Enumerating objects": PREPARING,
    b"Counting objects": COUNTING,
    b"Compressing objects": COMPRESSING,
}
_OWN = {
    b"Receiving objects": RECEIVING,
    b"Unpacking objects": RECEIVING,
    b"Resolving deltas": RESOLVING,
    b"Checking connectivity": CHECKING,
}
_LINE = re.compile(
    rb"(?P<remote>remote: )?(?P<phase>[A-Z][a-z]+ [a-z]+): +"
    rb"(?:\d{1,3}% \((?P<done>\d{1,18})/(?P<total>\d{1,18})\)|(?P<count>\d{1,18})(?=[,\s]|$))"
    rb"(?:, (?P<size>[\d.]{1,12} (?:bytes|[KMG]iB)))?(?: \| (?P<rate>[\d.]{1,12} (?:bytes|[KMG]iB))/s)?"
)
_UNITS = {b"bytes": 1, b"KiB": 1024, b"MiB": 1024**2, b"GiB": 1024**3}
_SEPARATOR = re.compile(rb"[\r\n]")


class FetchProgress:
    """Reads git's standard error in pieces of any size and remembers its last words."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._last = PREPARING.step()
        self._start = 0
        self.own_lines: deque[bytes] = deque(maxlen=KEPT_LINES)
        self.remote_lines: deque[bytes] = deque(maxlen=KEPT_LINES)

    def feed(self, data: bytes) -> Iterator[Step]:
        """A step for each line that tells something new; percentages never fall."""
        *complete, rest = _SEPARATOR.split(data)
        for part in complete:
            self._keep(part)
            yield from self._end_of_line()
        self._keep(rest)

    def close(self) -> Iterator[Step]:
        """The line that the end of the stream ended."""
        yield from self._end_of_line()

    def _keep(self, part: bytes) -> None:
        # A line without end must not fill the memory, and its beginning tells all there is.
        self._line += part[: MAX_LINE - len(self._line)]

    def _end_of_line(self) -> Iterator[Step]:
        line = bytes(self._line)
        self._line.clear()
        if not line.strip():
            return
        match = _LINE.match(line)
        phase = _phase_of(match) if match else None
        if match and phase:
            yield from self._advance(phase, match)
        elif line.startswith(b"remote:"):
            self.remote_lines.append(line)
        elif not line.startswith((b" * [new", b"From ")):
            self.own_lines.append(line)

    def _advance(self, phase: Phase, match: re.Match[bytes]) -> Iterator[Step]:
        if phase.start < self._start:
            return
        self._start = phase.start
        new = phase.step(
            done=_number(match["done"] or match["count"]), total=_number(match["total"])
        )
        step = Step(
            max(self._last.percent, new.percent),
            new.key,
            new.phrase,
            new.done,
            new.total,
            # Git repeats the size on each line of its own; a server has no say in it.
            _bytes(match["size"]) if phase is RECEIVING else self._last.received_bytes,
            _bytes(match["rate"]) if phase is RECEIVING else None,
        )
        if step != self._last:
            self._last = step
            yield step


def _phase_of(match: re.Match[bytes]) -> Phase | None:
    return (_REMOTE if match["remote"] else _OWN).get(match["phase"])


def _number(digits: bytes | None) -> int | None:
    return int(digits) if digits is not None else None


def _bytes(text: bytes | None) -> int | None:
    """`34.54 MiB` in bytes; None when there is none or it is no number."""
    if text is None:
        return None
    number, unit = text.split(b" ")
    try:
        return int(float(number) * _UNITS[unit])
    except ValueError:
        return None
