"""Open streams, each read by a page of its own, on the ASGI application as a server runs it."""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from django.test import Client

from forge.asgi import application


@dataclass(frozen=True)
class Event:
    name: str
    data: str
    at: float = field(default=0.0, compare=False)


class Stream:
    """One open page: what it was sent, and when."""

    def __init__(
        self, server: "Server", client: Client, path: str, headers: dict[str, str]
    ) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.ended = threading.Event()
        self._server = server
        self._events: queue.Queue[Event | None] = queue.Queue()
        self._rest = b""
        self._scope = _scope(client, path, headers)
        self._asked = False
        self._answered = threading.Event()
        self._reading = asyncio.Event()
        self._reading.set()
        self._left = asyncio.Event()
        self._task: Future[None] = asyncio.run_coroutine_threadsafe(self._run(), server.loop)

    def answered(self) -> "Stream":
        assert self._answered.wait(20), "no answer"
        return self

    def next(self, *names: str, seconds: float = 10) -> Event:
        """The next event, or the next one of these names."""
        deadline = time.monotonic() + seconds
        while True:
            event = self._events.get(timeout=max(0.001, deadline - time.monotonic()))
            assert event is not None, "the stream has ended"
            if event.name in (names or {"progress", "status", "done"}):
                return event

    def until(self, words: str) -> Event:
        """The next event that has these words in it."""
        while words not in (event := self.next()).data:
            pass
        return event

    def rest(self, *, seconds: float = 10) -> list[Event]:
        """Everything from here to the end of the stream."""
        assert self.ended.wait(seconds), "the stream does not end"
        events = []
        while (event := self._events.get(timeout=1)) is not None:
            events.append(event)
        return events

    def stop_reading(self) -> None:
        """From the next word on, the server has to wait for this page."""
        self._server.loop.call_soon_threadsafe(self._reading.clear)
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._server.loop).result(5)

    def go_on_reading(self) -> None:
        self._server.loop.call_soon_threadsafe(self._reading.set)

    def leave(self) -> None:
        """Close the page."""
        self._server.loop.call_soon_threadsafe(self._left.set)
        self.go_on_reading()
        assert self.ended.wait(20)

    async def _run(self) -> None:
        try:
            await application(self._scope, self._receive, self._send)
        finally:
            self._answered.set()
            self._events.put(None)
            self.ended.set()

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode().lower(): v.decode() for k, v in message["headers"]}
            return
        await self._reading.wait()
        self.body += message.get("body", b"")
        *whole, self._rest = (self._rest + message.get("body", b"")).split(b"\n\n")
        for block in whole:
            self._events.put(_event(block.decode()))
        self._answered.set()


def _scope(client: Client, path: str, headers: dict[str, str]) -> dict[str, Any]:
    cookies = "; ".join(f"{name}={morsel.value}" for name, morsel in client.cookies.items())
    path, _mark, query = path.partition("?")
    told = {"host": "testserver", "accept": "text/event-stream", "cookie": cookies, **headers}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), text.encode("latin-1")) for name, text in told.items()],
        "client": ("127.0.0.1", 50000),
        "server": ("testserver", 80),
    }


def _event(block: str) -> Event:
    lines = [line.partition(": ") for line in block.split("\n") if not line.startswith(":")]
    name = next((text for key, _colon, text in lines if key == "event"), "comment")
    data = "\n".join(text for key, _colon, text in lines if key == "data")
    return Event(name, data, time.monotonic())


class Server:
    """An event loop in a thread, as a web process has one."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self._streams: list[Stream] = []

    def open(self, client: Client, path: str, **headers: str) -> Stream:
        names = {name.replace("_", "-"): text for name, text in headers.items()}
        stream = self.ask(lambda: Stream(self, client, path, names))
        self._streams.append(stream)
        return stream

    def ask(self, call: Callable[[], Any]) -> Any:
        """The result of a call in the loop's thread."""

        async def answer() -> Any:
            return call()

        return asyncio.run_coroutine_threadsafe(answer(), self.loop).result(20)

    def close(self) -> None:
        for stream in self._streams:
            stream.leave()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(20)
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
