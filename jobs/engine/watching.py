"""What somebody waits for: one thread per process reads the jobs that are watched, all at once.

It reads when the database hints at a change, and tells the listeners of a job when there is
something new of it: open pages, and callers that wait for its end.
"""

import asyncio
import logging
import queue
import threading
import time
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from jobs.engine.execution import give_connections_back
from jobs.engine.lifecycle import Job
from jobs.engine.wakeup import CHANGED, Waker, using_own_connection
from jobs.engine.weather import SICK, Weather

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_READS = 0.1
SECONDS_WITHOUT_HINTS = 2.0

Frame = tuple[str, str]
"""(event name, data): one Server-Sent Event."""

Listener = Callable[[], None]
"""Called on the watching thread when there is something new; equal ones are called once."""


class Feed(Protocol):
    """How the jobs of one kind are read and shown. One instance per purpose, made at import."""

    @property
    def using(self) -> str:
        """The database that hints at changes of these jobs."""

    def read(self, ids: Collection[uuid.UUID]) -> Mapping[uuid.UUID, Job]:
        """The rows with these ids that still exist, in a number of queries that is constant."""

    def fingerprint(self, job: Any) -> object:
        """What of the row is shown; equal fingerprints render alike."""

    def frames(self, before: Any | None, job: Any | None) -> list[Frame]:
        """The events that take a page from `before` to `job`; None is a job that is gone."""


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """What is to be shown of a job, replaced as a whole, so that no reader sees half of it."""

    frames: Sequence[Frame] = ()
    mark: object = None
    over: bool = False
    job: Job | None = None


UNREAD = Shown()
"""Of a job that nobody has read yet."""


@dataclass(slots=True, eq=False)
class Watched:
    """One job that somebody watches."""

    feed: Feed
    pk: uuid.UUID
    shown: Shown = UNREAD
    listeners: Counter[Listener] = field(default_factory=Counter)


class Hub:
    """The watched jobs of this process and the thread that reads them; asleep when there are none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[tuple[Feed, uuid.UUID], Watched] = {}
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._rung = threading.Event()
        self._thread: threading.Thread | None = None
        self.closing = False

    def join(self, feed: Feed, pk: uuid.UUID, *, listener: Listener) -> Watched:
        """Watch the job `pk`: `listener` is called whenever `shown` was replaced. Reads nothing itself.

        A job that ended for those who watch it may have been run again since, so it is read anew.
        """
        with self._lock:
            watched = self._watched.get((feed, pk))
            if watched is None or watched.shown.over:
                watched = self._watched[feed, pk] = Watched(feed, pk)
            watched.listeners[listener] += 1
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._watch, name="jobs-live", daemon=True)
                self._thread.start()
        self.ring()
        return watched

    def leave(self, watched: Watched, *, listener: Listener) -> None:
        key = watched.feed, watched.pk
        with self._lock:
            watched.listeners -= Counter([listener])
            if not watched.listeners and self._watched.get(key) is watched:
                del self._watched[key]
        self.ring()

    async def states(
        self, feed: Feed, pk: uuid.UUID, *, patience: float | None = None
    ) -> AsyncGenerator[Shown]:
        """What is to be shown of a job: now, at every change, and last when it is over.

        The same again after `patience` seconds without a change. Who reads slowly misses states in
        between, and never the last. Works on any event loop; close it (`aclosing`) to leave.
        """
        news = News()
        watched = self.join(feed, pk, listener=news)
        try:
            seen = UNREAD
            while not seen.over and not self.closing:
                if watched.shown is seen and not await news.within(patience):
                    yield seen
                elif watched.shown is not seen:
                    seen = watched.shown
                    yield seen
        finally:
            self.leave(watched, listener=news)

    def ring(self) -> None:
        """Something may have changed: read soon."""
        if not self._rung.is_set():
            self._rung.set()
            self._bell.put(None)

    def close_all(self) -> None:
        """End every stream of this process. Safe in a signal handler's follow-up."""
        self.closing = True
        for watched in self.all():
            self._tell(watched)

    def all(self) -> list[Watched]:
        with self._lock:
            return list(self._watched.values())

    def _tell(self, watched: Watched) -> None:
        with self._lock:
            listeners = list(watched.listeners)
        for listener in listeners:
            try:
                listener()
            except Exception:
                logger.exception("live pages: one who watches %s cannot be told", watched.pk)

    def _watch(self) -> None:
        """Read at each hint, ten times a second at most; end when nobody watches."""
        weather = Weather("live pages")
        wakers: dict[str, Waker] = {}
        with ExitStack() as stack:
            stack.callback(give_connections_back)
            while True:
                watched = self.all()
                if not watched and self._may_end():
                    return
                pause = SECONDS_BETWEEN_READS
                try:
                    for alias in {entry.feed.using for entry in watched} - set(wakers):
                        wakers[alias] = self._listen(alias, stack)
                    self._read(watched)
                    weather.good()
                except SICK as error:
                    pause = weather.bad(error)
                except Exception:
                    logger.exception("live pages: the jobs could not be read")
                time.sleep(pause)
                self._wait()

    def _listen(self, alias: str, stack: ExitStack) -> Waker:
        """Hear of changes in that database, and read it on a connection of this thread's own."""
        waker = Waker([CHANGED], self.ring, using=alias)
        waker.start()
        stack.callback(waker.close)
        stack.enter_context(using_own_connection(alias))
        return waker

    def _may_end(self) -> bool:
        with self._lock:
            if self._watched:
                return False
            self._thread = None
            return True

    def _wait(self) -> None:
        with suppress(queue.Empty):
            self._bell.get(timeout=SECONDS_WITHOUT_HINTS)
        self._rung.clear()

    def _read(self, watched: Sequence[Watched]) -> None:
        by_feed: dict[Feed, list[Watched]] = {}
        for entry in watched:
            if not entry.shown.over:
                by_feed.setdefault(entry.feed, []).append(entry)
        for feed, entries in by_feed.items():
            rows = feed.read([entry.pk for entry in entries])
            for entry in entries:
                try:
                    if _show(entry, rows.get(entry.pk)):
                        self._tell(entry)
                except Exception:
                    # One job that cannot be shown must not keep the others from their pages.
                    logger.exception("live pages: %s cannot be shown", entry.pk)
                    entry.shown = replace(entry.shown, mark=_mark(feed, rows.get(entry.pk)))


class News:
    """A listener for a coroutine: an `asyncio.Event` that the watching thread may set."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def __call__(self) -> None:
        # Whose loop is closed does not wait any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._event.set)

    async def within(self, seconds: float | None) -> bool:
        """Wait for a call since the last one that was waited for; False when it does not come."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


def _show(watched: Watched, job: Job | None) -> bool:
    """Render `job` if it changed; True when there is something new to tell."""
    mark = _mark(watched.feed, job)
    if watched.shown is not UNREAD and mark == watched.shown.mark:
        return False
    frames = watched.feed.frames(watched.shown.job, job)
    watched.shown = Shown(frames, mark, over=job is None or job.is_over, job=job)
    return True


def _mark(feed: Feed, job: Job | None) -> object:
    return None if job is None else feed.fingerprint(job)


hub = Hub()
