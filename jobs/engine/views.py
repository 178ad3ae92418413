"""How far a job is, for pages that were given its token: a stream, and a piece of a page to poll."""

import re
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

from django.contrib.auth.decorators import login_not_required
from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.views.decorators.http import require_GET, require_safe

from jobs.engine.bar import BadToken, BarFeed, opened
from jobs.engine.execution import give_connections_back
from jobs.engine.watching import UNREAD, Frame, hub

KEEP_ALIVE_SECONDS = 20
"""Silence for longer makes proxies hang up, and hides that a browser is gone."""


# The token is the permission: whoever was shown the bar may watch the job.
@login_not_required
@require_safe
def state(_request: HttpRequest, token: str) -> HttpResponse:
    """The job's state as it is now, as HTML."""
    feed, pk = _asked(token)
    html = feed.rendered(feed.read([pk]).get(pk))
    return HttpResponse(html, headers={"Cache-Control": "no-store"})


@login_not_required
@require_GET
def stream(request: HttpRequest, token: str) -> HttpResponseBase:
    """The job's state as Server-Sent Events until it is over; 204 where that would hold a thread."""
    feed, pk = _asked(token)
    if not isinstance(request, ASGIRequest):
        return HttpResponse(status=204)
    response = StreamingHttpResponse(
        _events(feed, pk),
        content_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )
    give_connections_back()
    return response


def _asked(token: str) -> tuple[BarFeed, uuid.UUID]:
    try:
        return opened(token)
    except BadToken as error:
        raise Http404(str(error)) from None


async def _events(feed: BarFeed, pk: uuid.UUID) -> AsyncIterator[bytes]:
    sent = UNREAD
    async with aclosing(hub.states(feed, pk, patience=KEEP_ALIVE_SECONDS)) as states:
        async for shown in states:
            yield b": still here\n\n" if shown is sent else encoded(shown.frames)
            sent = shown


def encoded(frames: Sequence[Frame]) -> bytes:
    """Text of whatever kind stays within the data of its event."""
    text = ""
    for name, data in frames:
        lines = (f"data: {line}\n" for line in re.split(r"\r\n|\r|\n", data))
        text += f"event: {name}\n{''.join(lines)}\n"
    return text.encode()
