"""The ASGI application that a web server runs."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

from asgiref.sync import ThreadSensitiveContext
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.utils import translation

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "forge.settings")
django_application = get_asgi_application()

from jobs.engine.watching import hub  # noqa: E402 - needs the settings to be there

Message = dict[str, Any]

# Django would keep one thread for each open stream; the little that streams do there they can
# share.
_stream_threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="forge-streams")


async def application(
    scope: Message,
    receive: Callable[[], Awaitable[Message]],
    send: Callable[[Message], Awaitable[None]],
) -> None:
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
    elif scope["type"] == "http" and scope["path"].endswith("/stream"):
        async with ThreadSensitiveContext(executor=_stream_threads):
            await django_application(scope, receive, send)  # type: ignore[arg-type]
    else:
        await django_application(scope, receive, send)  # type: ignore[arg-type]


async def _lifespan(
    receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            _read_translations()
            _end_streams_on_signals(asyncio.get_running_loop())
            await send({"type": "lifespan.startup.complete"})
        else:
            await send({"type": "lifespan.shutdown.complete"})
            return


def _read_translations() -> None:
    """Before anybody asks: who comes first in a language waits no longer, and tells nobody so."""
    for language, _name in settings.LANGUAGES:
        with translation.override(language):
            translation.gettext("Home")


def _end_streams_on_signals(loop: asyncio.AbstractEventLoop) -> None:
    """A server waits for open responses before its shutdown, so streams end by the signal itself."""
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)

        def handle(number: int, frame: FrameType | None, before: Any = before) -> None:
            loop.call_soon_threadsafe(hub.close_all)
            if callable(before):
                before(number, frame)

        try:
            signal.signal(number, handle)
        except ValueError:
            # Not the main thread: whoever embeds the application stops it in a way of their own.
            return
