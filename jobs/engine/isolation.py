"""Suspects run in processes of their own, so that a job that kills its process kills no other."""

import contextlib
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection
from multiprocessing.context import ForkServerProcess
from types import ModuleType

from jobs.engine import loaded, maintenance
from jobs.engine.execution import give_connections_back
from jobs.engine.lifecycle import Job
from jobs.engine.weather import SICK

logger = logging.getLogger(__name__)

SECONDS_TO_CLAIM = 5.0
SECONDS_BEFORE_THE_NEXT = 1.0

Kind = type[Job]
Body = Callable[[str], None]
"""Runs, in its own process, the suspects of the kind with this short name."""


@contextlib.contextmanager
def nameless_program() -> Iterator[None]:
    """A process that is started meanwhile does not import the file that was run to start this one.

    A `manage.py` that asks for no `__name__ == "__main__"` would run a second worker in it.
    """
    program = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = program


class Isolation:
    """The children of one worker. Each holds a seat of its kind as long as it lives.

    They are forked from a server that is started at the first need and has Django loaded: this
    process has threads, so it must not fork, and loading Django for each child takes a second.
    """

    def __init__(
        self, body: Body, *, ended: Callable[[Kind], None], queues: Sequence[str] = ()
    ) -> None:
        self._body = body
        self._queues = queues
        self._ended = ended
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._children: dict[ForkServerProcess, tuple[Kind, float]] = {}
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([loaded.__name__])

    def __len__(self) -> int:
        return len(self._children)

    def wanted(self, kind: Kind) -> int:
        """How many more children there is work for."""
        now = time.monotonic()
        with self._lock:
            starting = sum(
                child_kind is kind and now - began < SECONDS_TO_CLAIM
                for child_kind, began in self._children.values()
            )
        return max(0, self._suspects(kind) - starting)

    def _suspects(self, kind: Kind) -> int:
        names = self._queues if self._queues and kind.queued else [None]
        suspects = kind.objects.ready().filter(suspect=True)
        return sum(suspects.in_queue(name).count() for name in names)

    def start(self, kind: Kind) -> None:
        child = self._context.Process(
            target=loaded.run,
            args=(pickle.dumps(self._body), kind.kind),
            name=f"suspect-{kind.kind}",
        )
        # To start one asks for the exit codes of the others.
        with self._lock, nameless_program():
            child.start()
            self._children[child] = kind, time.monotonic()
        threading.Thread(
            target=self._wait, args=(child, kind), name="jobs-isolation", daemon=True
        ).start()

    def stop(self) -> None:
        """Let the children drain; the second time, release what they run at once."""
        # Of two equal signals that come close together, a process gets one.
        number = signal.SIGINT if self._stopping.is_set() else signal.SIGTERM
        self._stopping.set()
        for child in self._living():
            if child.pid is not None and not connection.wait([child.sentinel], 0):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, number)

    def join(self, seconds: float) -> None:
        """Wait for the children to end; kill those that do not."""
        deadline = time.monotonic() + seconds
        for child in self._living():
            connection.wait([child.sentinel], max(0.0, deadline - time.monotonic()))
        for child in self._living():
            child.kill()

    def _living(self) -> Sequence[ForkServerProcess]:
        with self._lock:
            return list(self._children)

    def _wait(self, child: ForkServerProcess, kind: Kind) -> None:
        connection.wait([child.sentinel])
        with self._lock:
            # Threads that ask at the same time take the exit code from each other.
            child.join()
        left = self._left_by(kind, child.exitcode or 0)
        give_connections_back()
        if left:
            self._stopping.wait(SECONDS_BEFORE_THE_NEXT)
        with self._lock:
            self._children.pop(child, None)
        self._ended(kind)

    def _left_by(self, kind: Kind, exit_code: int) -> bool:
        """Whether a child left suspects, as when their keys are taken or it failed at once.

        The next one would do no better, so it had better not follow at once.
        """
        with contextlib.suppress(*SICK):
            if exit_code:
                logger.warning(
                    "The process for a suspect of %s died with exit code %d", kind.kind, exit_code
                )
                maintenance.rescue_dead(kind)
            return exit_code >= 0 and self._suspects(kind) > 0
        return True


def become_a_child() -> None:
    """First words of a child: a group of its own, so that Ctrl-C reaches its parent alone."""
    os.setpgid(0, 0)
    threading.Thread(target=_leave_with_parent, name="jobs-parent", daemon=True).start()


def _leave_with_parent() -> None:
    """Get SIGTERM when the worker is gone, however it went.

    The system could tell only of the end of the server that forked this process, and that lives as
    long as any of its children.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
