"""Waiting for the end of a job, in a coroutine or in a thread, by the wake-ups of the live pages."""

import asyncio
import copy
import threading
import time
import uuid
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from django.db import router
from django.utils.asyncio import async_unsafe

from jobs.engine.lifecycle import Job
from jobs.engine.watching import Frame, News, Watched, hub


async def until_over[J: Job](kind: type[J], pk: uuid.UUID, *, timeout: float | None = None) -> J:
    """The job `pk` of that kind once it is completed, failed or cancelled.

    Works on any event loop and never blocks it. All who wait, for whatever jobs of a kind, cost one
    query at a change. Raises TimeoutError after `timeout` seconds, which touches no job and may
    come before the first look if it is below 0.2 s or so, and the kind's DoesNotExist when
    there is no such row, or none any more.
    """
    feed = _feed_of(kind, pk)
    news = News()
    watched = hub.join(feed, pk, listener=news)
    try:
        async with asyncio.timeout(timeout):
            while not watched.shown.over:
                await news.within(None)
    except TimeoutError:
        if not watched.shown.over:
            raise _too_late(kind, pk, timeout) from None
    finally:
        hub.leave(watched, listener=news)
    return _ended(kind, watched)


@async_unsafe("A coroutine waits by `await until_over(…)`.")
def wait_until_over[J: Job](kind: type[J], pk: uuid.UUID, *, timeout: float | None = None) -> J:
    """`until_over` for code without an event loop; not inside the transaction that enqueued the job."""
    feed = _feed_of(kind, pk)
    deadline = None if timeout is None else time.monotonic() + timeout
    news = threading.Event()
    watched = hub.join(feed, pk, listener=news.set)
    try:
        while not watched.shown.over:
            news.clear()
            rest = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not watched.shown.over and not news.wait(rest):
                raise _too_late(kind, pk, timeout)
    finally:
        hub.leave(watched, listener=news.set)
    return _ended(kind, watched)


class EndFeed:
    """Jobs of which nothing is shown but their end."""

    def __init__(self, kind: type[Job]) -> None:
        self._kind = kind

    @property
    def using(self) -> str:
        # What was written a moment ago need not have reached a replica.
        return router.db_for_write(self._kind)

    def read(self, ids: Collection[uuid.UUID]) -> Mapping[uuid.UUID, Job]:
        """Ids and statuses; the whole row, which may be large, of those that have ended."""
        rows = self._kind._base_manager.using(self.using)
        found = rows.only("status").in_bulk(list(ids))
        ended = [pk for pk, job in found.items() if job.is_over]
        return {**found, **rows.in_bulk(ended)} if ended else found

    def fingerprint(self, job: Job) -> object:
        return job.is_over

    def frames(self, before: Job | None, job: Job | None) -> list[Frame]:
        return []


@cache
def _feed_of_kind(kind: type[Job]) -> EndFeed:
    return EndFeed(kind)


def _feed_of(kind: type[Job], pk: uuid.UUID) -> EndFeed:
    """Raises TypeError for what is no kind or no id: that would be waited for without end."""
    if not (isinstance(kind, type) and issubclass(kind, Job)) or kind._meta.abstract:
        raise TypeError(f"kind must be a kind of job, not {kind!r}.")
    if not isinstance(pk, uuid.UUID):
        raise TypeError(f"pk must be a UUID, not {pk!r}.")
    return _feed_of_kind(kind)


def _too_late(kind: type[Job], pk: uuid.UUID, timeout: float | None) -> TimeoutError:
    return TimeoutError(f"{kind.kind} {pk} is not over after {timeout} s.")


def _ended[J: Job](kind: type[J], watched: Watched) -> J:
    job: Any = watched.shown.job
    if job is None:
        raise kind.DoesNotExist(
            f"There is no {kind.kind} {watched.pk}: it has been deleted, or the transaction that "
            "enqueued it has not committed."
        )
    # Others who waited have the same row; none of them may find what another did to it.
    ended: J = copy.copy(job)
    return ended
