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
from functools import partial
from types import FrameType

logger = logging.getLogger(__name__)

FIRST_WAIT = 0.5
LONGEST_WAIT = 30.0
LONGEST_LOOK = 0.5
LOOK_WHILE_OPENING = 0.05
HEALTHY_AFTER = 60.0
DEATHS_IN_A_ROW = 20
EXIT_WISHES = (0, 75)  # EX_TEMPFAIL of sysexits.h: start me again
EXIT_GIVE_UP = 78  # EX_CONFIG: nothing gets better by starting me again
READY_FD = "SUPERVISOR_READY_FD"
PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class Child:
    """A program that is to run always.

    With an `opening`, these arguments are added until it has told once, by `tell_ready`, that it
    is ready; the children behind it wait for that.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    pass_fds: Sequence[int] = ()
    opening: Sequence[str] | None = None
    process: "subprocess.Popen[bytes] | None" = None
    deaths: int = 0
    started_at: float = 0.0
    start_at: float = 0.0
    _hears: int | None = None

    def start(self) -> None:
        env, pass_fds, opening = {**os.environ, **self.env}, [*self.pass_fds], self.opening or ()
        tells = None
        if self.opening is not None:
            self._hears, tells = os.pipe()
            os.set_blocking(self._hears, False)
            env[READY_FD] = str(tells)
            pass_fds.append(tells)
        # A group of its own: Ctrl-C reaches the supervisor alone, which passes it on once.
        self.process = subprocess.Popen(
            [*self.argv, *opening],
            env=env,
            pass_fds=pass_fds,
            stdin=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=partial(_die_with, os.getpid()) if sys.platform == "linux" else None,
        )
        if tells is not None:
            os.close(tells)
        self.started_at = time.monotonic()

    def is_opening(self) -> bool:
        """Whether it runs and is yet to tell that it is ready, which is no signal."""
        return self._hears is not None

    def is_ready(self) -> bool:
        """Whether the children behind this one may start."""
        if self._hears is None:
            return self.opening is None
        try:
            told = os.read(self._hears, 1)
        except BlockingIOError:
            return False
        os.close(self._hears)
        self._hears = None
        if told:
            self.opening = None
        return bool(told)

    def note_death(self, code: int, now: float) -> None:
        """Plan the next start; some exit codes are a wish to be started again, not an accident."""
        self.process = None
        wished = code in EXIT_WISHES
        healthy = now - self.started_at > HEALTHY_AFTER
        self.deaths = 0 if wished or healthy else self.deaths + 1
        self.start_at = now + min(LONGEST_WAIT, FIRST_WAIT * 2 ** max(0, self.deaths - 1))
        how = "leaves and is started again" if wished else f"died with exit code {code}"
        logger.warning("%s %s; next start in %.1f s", self.name, how, self.start_at - now)


def tell_ready() -> None:
    """In a child: let the supervisor start those that wait for it; nothing without a supervisor."""
    told = os.environ.pop(READY_FD, None)
    if told is not None:
        with contextlib.suppress(OSError, ValueError), open(int(told), "wb", buffering=0) as pipe:
            pipe.write(b".")


def die_with_parent() -> None:
    """Get SIGTERM when the process that started this one is gone, however it went."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _die_with(parent: int) -> None:
    """In the child: like `die_with_parent`, also when `parent` died before that was said."""
    die_with_parent()
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


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
            if not gave_up:
                self._wait(self._until_next_start(time.monotonic()))
        self._stop_children()
        return 1 if gave_up else 0

    def _until_next_start(self, now: float) -> float:
        """Until a back-off is over; half a second where none is, less while a child opens."""
        opening = any(child.is_opening() for child in self._children)
        waits = [child.start_at - now for child in self._children if child.process is None]
        longest = LOOK_WHILE_OPENING if opening else LONGEST_LOOK
        return min([longest, *(wait for wait in waits if wait > 0)])

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
                if code == EXIT_GIVE_UP:
                    return True
                if code is not None:
                    child.note_death(code, now)
                if child.deaths >= DEATHS_IN_A_ROW:
                    logger.error("%s died %d times in a row; giving up", child.name, child.deaths)
                    return True
            elif now >= child.start_at:
                child.start()
            if not child.is_ready():
                break
        return False

    def _stop_children(self) -> None:
        """SIGTERM to all, SIGINT for a second signal, SIGKILL when the time is over."""
        told = 0
        deadline = time.monotonic() + self._stop_seconds
        while self._alive() and time.monotonic() < deadline:
            if told < max(1, self._stops):
                # Two equal signals in a row may arrive as one.
                self._signal(signal.SIGINT if told else signal.SIGTERM)
                told += 1
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
