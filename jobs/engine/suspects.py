"""The process of a suspect: a worker with one seat that ends when there are no suspects left."""

import signal
from collections.abc import Sequence
from typing import Protocol

from jobs.engine.isolation import become_a_child
from jobs.engine.leaving import leave
from jobs.engine.lifecycle import Job
from jobs.engine.worker import Worker


def run_suspects(name: str, *, grace_seconds: float | None, queues: Sequence[str] = ()) -> None:
    """Run the suspects of the kind with this short name, one after the other."""
    become_a_child()
    kind = next(kind for kind in Job.kinds() if kind.kind == name)
    worker = Worker(
        [kind],
        seats={name: 1},
        queues=queues,
        grace_seconds=grace_seconds,
        burst=True,
        suspects_only=True,
    )
    stop_on_signals(worker)
    leave(worker.run())


class Stoppable(Protocol):
    def stop(self) -> None: ...


def stop_on_signals(worker: Stoppable) -> None:
    """SIGTERM or SIGINT drain the worker; a second one hands back at once what it runs."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stop())
