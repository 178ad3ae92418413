"""What the tests of imports share: one call that imports, and what it told."""

import os
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repositories.importing import Imported, import_repository, staging
from repositories.preflight import Patience
from repositories.processes import Process, start

QUICK = Patience(connect=1, read=1, silence=1)


@dataclass
class Reports:
    """Takes reports; `at` is called with each percentage and may raise."""

    at: Callable[[int], None] = lambda percent: None
    told: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, percent: int, **more: Any) -> None:
        self.told.append({"percent": percent, **more})
        self.at(percent)

    @property
    def percents(self) -> list[int]:
        return [report["percent"] for report in self.told]


@dataclass
class Starts:
    """Starts processes and remembers them."""

    processes: list[Process] = field(default_factory=list)

    def __call__(self, argv: Sequence[str], **more: Any) -> Process:
        self.processes.append(start(argv, **more))
        return self.processes[-1]

    def living(self) -> list[str]:
        """Processes of the started groups that still run."""
        groups = {str(process.pid) for process in self.processes}
        found = []
        for entry in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _parent, group = entry.read_text().rpartition(")")[2].split()[:3]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if group in groups and state != "Z":
                found.append(entry.parent.name)
        return found


def imported(
    source: str | os.PathLike[str],
    *,
    local: bool = False,
    report: Reports | None = None,
    starts: Starts | None = None,
    **more: Any,
) -> Imported:
    """Import into a staging directory of its own."""
    return import_repository(
        os.fspath(source),
        local=local,
        into=staging(uuid.uuid4(), uuid.uuid4()),
        start=starts or Starts(),
        report=report or Reports(),
        **{"patience": QUICK} | more,
    )


def wait_until(condition: Callable[[], bool], *, seconds: float = 10) -> None:
    """Return once the condition holds; fail when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)
