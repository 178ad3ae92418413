"""Live pages by django-eventstream, which is the SSE layer: its stream, keep-alive and channels.

An event on its channels is only a hint here. What a page gets is the newest state that the watcher
rendered, so a dropped hint loses nothing and nobody ever reads an outdated one.
"""

import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, StreamingHttpResponse
from django_eventstream.channelmanager import DefaultChannelManager
from django_eventstream.event import Event
from django_eventstream.utils import sse_encode_event
from django_eventstream.views import events, get_listener_manager

from jobs.engine.execution import give_connections_back
from jobs.engine.watching import Feed, Watched, hub


@dataclass(frozen=True)
class Hint:
    """A listener; all pages on a channel share one call."""

    channel: str

    def __call__(self) -> None:
        get_listener_manager().add_to_queues(self.channel, Event(self.channel, "hint", ""))


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
    # The stream object itself is wrapped, so the private attribute is read on purpose.
    response.streaming_content = _states(response._iterator, feed, pk)
    response["Cache-Control"] = "no-store"
    give_connections_back()
    return response  # type: ignore[no-any-return]


async def _states(inner: Any, feed: Feed, pk: uuid.UUID) -> AsyncIterator[bytes]:
    watched: Watched | None = None
    hint = Hint(channel_of(pk))
    try:
        async with aclosing(inner):
            # Its first word comes after it subscribed; only then no change can slip through.
            yield _bytes(await anext(inner))
            watched = hub.join(feed, pk, listener=hint)
            while True:
                shown = watched.shown
                if shown.frames:
                    words = (sse_encode_event(name, data) for name, data in shown.frames)
                    yield _bytes("".join(words))
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
            hub.leave(watched, listener=hint)


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()
