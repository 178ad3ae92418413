"""Live pages: one watcher per web process reads the rows that somebody watches.

django-eventstream is the SSE layer: its stream, keep-alive, encoding and channel manager. An event
on its channels is only a hint here. What a page gets is the newest state that the watcher rendered,
so a dropped hint loses nothing and nobody ever reads an outdated one.
"""

import logging
import queue
import threading
import time
import uuid
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from django.http import HttpRequest, StreamingHttpResponse
from django_eventstream.channelmanager import DefaultChannelManager
from django_eventstream.event import Event
from django_eventstream.utils import sse_encode_event
from django_eventstream.views import events, get_listener_manager

from jobs.engine.execution import give_connections_back
from jobs.engine.lifecycle import Job
from jobs.engine.wakeup import CHANGED, Waker, using_own_connection
from jobs.engine.weather import SICK, Weather

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_READS = 0.1
SECONDS_WITHOUT_HINTS = 2.0

Frame = tuple[str, str]
"""(event name, data): one Server-Sent Event."""


class Feed(Protocol):
    """How the jobs of one kind are read and shown. One instance per kind, made at import."""

    using: str

    def read(self, ids: Collection[uuid.UUID]) -> Mapping[uuid.UUID, Job]:
        """The rows with these ids that still exist, in a number of queries that is constant."""

    def fingerprint(self, job: Any) -> object:
        """What of the row a page shows; equal fingerprints render alike."""

    def frames(self, before: Any | None, job: Any | None) -> list[Frame]:
        """The events that take a page from `before` to `job`; None is a job that is gone."""


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """What pages are to show of a job, replaced as a whole, so that no reader sees half of it."""

    frames: Sequence[Frame] = ()
    mark: object = None
    over: bool = False


@dataclass(slots=True, eq=False)
class Watched:
    """One job that at least one open page shows."""

    feed: Feed
    pk: uuid.UUID
    channel: str
    viewers: int = 0
    job: Job | None = None
    shown: Shown = field(default_factory=Shown)


class Hub:
    """The watched jobs of this process and the thread that reads them; asleep when there are none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[str, Watched] = {}
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._rung = threading.Event()
        self._thread: threading.Thread | None = None
        self.closing = False

    def join(self, feed: Feed, pk: uuid.UUID, job: Job | None) -> Watched:
        """One more page shows the job `pk`, read a moment ago as `job`."""
        channel = channel_of(pk)
        with self._lock:
            watched = self._watched.get(channel)
            if watched is None or _is_outdated(watched, job):
                watched = Watched(feed, pk, channel)
                _show(watched, job)
                self._watched[channel] = watched
            watched.viewers += 1
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._watch, name="jobs-live", daemon=True)
                self._thread.start()
        self.ring()
        return watched

    def leave(self, watched: Watched) -> None:
        with self._lock:
            watched.viewers -= 1
            if watched.viewers == 0 and self._watched.get(watched.channel) is watched:
                del self._watched[watched.channel]
        self.ring()

    def ring(self) -> None:
        """Something may have changed: read soon."""
        if not self._rung.is_set():
            self._rung.set()
            self._bell.put(None)

    def close_all(self) -> None:
        """End every stream of this process. Safe in a signal handler's follow-up."""
        self.closing = True
        for watched in self.all():
            _hint(watched)

    def all(self) -> list[Watched]:
        with self._lock:
            return list(self._watched.values())

    def _watch(self) -> None:
        """Read at each hint, ten times a second at most; end when nobody watches."""
        weather = Weather("live pages")
        wakers: dict[str, Waker] = {}
        with ExitStack() as stack:
            while True:
                watched = self.all()
                if not watched and self._may_end():
                    return
                for alias in {entry.feed.using for entry in watched} - set(wakers):
                    stack.enter_context(using_own_connection(alias))
                    wakers[alias] = Waker([CHANGED], self.ring, using=alias)
                    wakers[alias].start()
                    stack.callback(wakers[alias].close)
                pause = SECONDS_BETWEEN_READS
                try:
                    self._read(watched)
                    weather.good()
                except SICK as error:
                    pause = weather.bad(error)
                except Exception:
                    logger.exception("live pages: the jobs could not be read")
                time.sleep(pause)
                self._wait()

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
                        _hint(entry)
                except Exception:
                    # One job that cannot be shown must not keep the others from their pages.
                    logger.exception("live pages: %s cannot be shown", entry.channel)
                    entry.shown = replace(entry.shown, mark=_mark(feed, rows.get(entry.pk)))


def _show(watched: Watched, job: Job | None) -> bool:
    """Render `job` if it changed; True when there is something new to send."""
    mark = _mark(watched.feed, job)
    if watched.shown.frames and mark == watched.shown.mark:
        return False
    frames = watched.feed.frames(watched.job, job)
    watched.job = job
    watched.shown = Shown(frames, mark, over=job is None or job.is_over)
    return True


def _mark(feed: Feed, job: Job | None) -> object:
    return None if job is None else feed.fingerprint(job)


def _is_outdated(watched: Watched, job: Job | None) -> bool:
    """The job was over for those who watch it, and has been run again since."""
    return watched.shown.over and watched.shown.mark != _mark(watched.feed, job)


def _hint(watched: Watched) -> None:
    get_listener_manager().add_to_queues(watched.channel, Event(watched.channel, "hint", ""))


hub = Hub()


class Channels(DefaultChannelManager):  # type: ignore[misc]
    """Whether a person may see a job is decided by the view in front of the stream."""

    def can_read_channel(self, user: Any, channel: str) -> bool:
        return channel.startswith("job-")

    def is_channel_reliable(self, channel: str) -> bool:
        return False


def channel_of(pk: uuid.UUID) -> str:
    return f"job-{pk}"


def stream(request: HttpRequest, feed: Feed, pk: uuid.UUID) -> StreamingHttpResponse:
    """The events of a job that the asking person may see.

    The current state at once, every change, then the final state and the end. Reconnecting starts
    with the current state again, so `Last-Event-ID` is not needed and not trusted.
    """
    request.META.pop("HTTP_LAST_EVENT_ID", None)
    request.GET = request.GET.__class__("")
    response = events(request, channels=[channel_of(pk)])
    job = feed.read([pk]).get(pk)
    # The stream object itself is wrapped, so the private attribute is read on purpose.
    response.streaming_content = _states(response._iterator, feed, pk, job)
    response["Cache-Control"] = "no-store"
    give_connections_back()
    return response  # type: ignore[no-any-return]


async def _states(inner: Any, feed: Feed, pk: uuid.UUID, job: Job | None) -> AsyncIterator[bytes]:
    watched: Watched | None = None
    try:
        async with aclosing(inner):
            # Its first word comes after it subscribed; only then no change can slip through.
            yield _bytes(await anext(inner))
            watched = hub.join(feed, pk, job)
            while True:
                shown = watched.shown
                yield _bytes("".join(sse_encode_event(name, data) for name, data in shown.frames))
                # While a slow page took this, the job may have ended: that is still to be sent.
                if shown.over or hub.closing:
                    return
                while watched.shown is shown and not hub.closing:
                    word = await anext(inner)
                    if "event: keep-alive" in word:
                        hub.ring()
                        yield _bytes(word)
    finally:
        if watched is not None:
            hub.leave(watched)


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()
