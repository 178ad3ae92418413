"""Starts processes, watches them, starts them again, and stops them politely."""

import contextlib
import ctypes
import logging
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType

logger = logging.getLogger(__name__)

FIRST_WAIT = 0.5
LONGEST_WAIT = 30.0
HEALTHY_AFTER = 60.0
DEATHS_IN_A_ROW = 20
PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class Child:
    """A program that is to run always."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    pass_fds: Sequence[int] = ()
    process: "subprocess.Popen[bytes] | None" = None
    deaths: int = 0
    started_at: float = 0.0
    start_at: float = 0.0

    def start(self) -> None:
        # A group of its own: Ctrl-C reaches the supervisor alone, which passes it on once.
        self.process = subprocess.Popen(
            self.argv,
            env={**os.environ, **self.env},
            pass_fds=self.pass_fds,
            stdin=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )
        self.started_at = time.monotonic()

    def note_death(self, code: int, now: float) -> None:
        """Plan the next start; 75 and 0 are a wish to be started again, not an accident."""
        self.process = None
        wished = code in (0, 75)
        healthy = now - self.started_at > HEALTHY_AFTER
        self.deaths = 0 if wished or healthy else self.deaths + 1
        self.start_at = now + min(LONGEST_WAIT, FIRST_WAIT * 2 ** max(0, self.deaths - 1))
        how = "leaves and is started again" if wished else f"died with exit code {code}"
        logger.warning("%s %s; next start in %.1f s", self.name, how, self.start_at - now)


def _die_with_parent() -> None:
    """In the child: get SIGTERM when the supervisor dies, however it dies."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Supervisor:
    """Runs until SIGTERM or SIGINT; returns 0, or 1 when a child would not stay alive."""

    def __init__(self, children: Sequence[Child], *, stop_seconds: float) -> None:
        self._children = children
        self._stop_seconds = stop_seconds
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._stops = 0

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGCHLD, self._on_child)
        gave_up = False
        while not self._stops and not gave_up:
            gave_up = self._tend(time.monotonic())
            self._wait(0.5)
        self._stop_children()
        return 1 if gave_up else 0

    def _on_stop(self, number: int, _frame: FrameType | None) -> None:
        self._stops += 1
        self._bell.put(None)

    def _on_child(self, number: int, _frame: FrameType | None) -> None:
        self._bell.put(None)

    def _wait(self, seconds: float) -> None:
        with contextlib.suppress(queue.Empty):
            self._bell.get(timeout=seconds)

    def _tend(self, now: float) -> bool:
        """Start what is to be started; True when a child died too often in a row."""
        for child in self._children:
            if child.process is not None:
                code = child.process.poll()
                if code is None:
                    continue
                child.note_death(code, now)
                if child.deaths >= DEATHS_IN_A_ROW:
                    logger.error("%s died %d times in a row; giving up", child.name, child.deaths)
                    return True
            elif now >= child.start_at:
                child.start()
        return False

    def _stop_children(self) -> None:
        """SIGTERM to all, once more for a second signal, SIGKILL when the time is over."""
        told = 0
        deadline = time.monotonic() + self._stop_seconds
        while self._alive() and time.monotonic() < deadline:
            if told < max(1, self._stops):
                told += 1
                self._signal(signal.SIGTERM)
            self._wait(0.1)
        if self._alive():
            names = ", ".join(child.name for child in self._alive())
            logger.warning("%s did not stop in %g s and is killed", names, self._stop_seconds)
            self._signal(signal.SIGKILL)
        for child in self._children:
            if child.process is not None:
                child.process.wait()

    def _alive(self) -> list[Child]:
        return [c for c in self._children if c.process is not None and c.process.poll() is None]

    def _signal(self, number: signal.Signals) -> None:
        for child in self._alive():
            if child.process is not None:
                child.process.send_signal(number)
