"""The seats of one kind: a semaphore, and the threads that work on what it lets through."""

import logging
import queue
import threading
from collections.abc import Callable

from jobs.engine.execution import Outcome, Run, close_everything, execute

logger = logging.getLogger(__name__)


class Seats:
    """At most `number` runs of one kind at the same time; `kept` of them are for urgent ones."""

    def __init__(
        self,
        kind: str,
        number: int,
        *,
        put: Callable[[Outcome], None],
        freed: Callable[[], None],
        kept: int = 0,
    ) -> None:
        self.number = number
        self.kept = min(kept, number // 2)
        self._kind = kind
        self._permits = threading.BoundedSemaphore(number)
        self._work: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._put = put
        self._freed = freed
        self._abandoned: set[Run] = set()
        self._lock = threading.Lock()
        for _ in range(number):
            self._add_thread()

    def take(self, most: int, *, urgent: bool = False) -> int:
        """Take free permits without waiting, `most` at most; returns how many.

        For one thread alone: those that are kept are taken too, and given back unless `urgent`.
        """
        left = 0 if urgent else self.kept
        taken = 0
        while taken < most + left and self._permits.acquire(blocking=False):
            taken += 1
        allowed = max(0, min(most, taken - left))
        self.give_back(taken - allowed)
        return allowed

    def give_back(self, permits: int) -> None:
        if permits:
            self._permits.release(permits)

    def start(self, run: Run) -> None:
        """Hand over a run for which a permit was taken."""
        self._work.put(run)

    def abandon(self, run: Run) -> bool:
        """Give the seat of a thread that does not obey to a new thread; False if already done."""
        with self._lock:
            if run in self._abandoned or not run.in_handler:
                return False
            self._abandoned.add(run)
        self._add_thread()
        self._permits.release()
        self._freed()
        return True

    def close(self) -> None:
        """Let idle threads end."""
        for _ in range(self.number):
            self._work.put(None)

    def _add_thread(self) -> None:
        threading.Thread(target=self._sit, name=f"jobs-{self._kind}", daemon=True).start()

    def _sit(self) -> None:
        while (run := self._work.get()) is not None:
            outcome = execute(run)
            close_everything()
            with self._lock:
                if run in self._abandoned:
                    # This thread was replaced and its job ended without it.
                    self._abandoned.discard(run)
                    return
            self._put(outcome)
            self._permits.release()
            self._freed()
