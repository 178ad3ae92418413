"""Where coroutines run: one event loop in a worker process, for all of its seats.

A seat's thread waits for its coroutine, so seats bound how many there are. Nothing is ever raised
in the loop's thread, which belongs to all: a run that is to end has its coroutine cancelled.
"""

import asyncio
import contextlib
import contextvars
import logging
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from asgiref.sync import ThreadSensitiveContext, async_to_sync

logger = logging.getLogger(__name__)

SECONDS_TO_START = 5.0
MOST_THREADS = 32
SECONDS_FOR_THREADS = 10.0
"""How long a coroutine that was cancelled waits for its threads: longer than a stubborn one may last."""

Call = Callable[[], Coroutine[Any, Any, Any]]
Nothing = Callable[[], None]
WhenStopped = Callable[[Nothing], None]
"""Takes what is to be called, from any thread, when the run is to end."""


def here(call: Call, _when_stopped: WhenStopped, _tidy: Nothing) -> Any:
    """Await it in the calling thread, in whose transaction its queries then are."""
    return async_to_sync(call)()


def on_the_loop(call: Call, when_stopped: WhenStopped, tidy: Nothing) -> Any:
    """Await it on the loop of this process; `tidy` is called in each thread that it made queries in."""
    attempt = _Attempt(call, tidy)
    loop = _the_loop(instead_of=None)
    while not attempt.start_on(loop):
        logger.error("a coroutine blocks the event loop; the others get a new one")
        loop = _the_loop(instead_of=loop)
    when_stopped(attempt.cancel)
    try:
        return attempt.done.result()
    except BaseException:
        # The seat is kept meanwhile, so that threads that go on are found like any that do not end.
        attempt.wait_for_threads()
        raise


class DaemonThreads(ThreadPoolExecutor):
    """Threads that hold up the end of the process for nothing, as those of the library would."""

    def __init__(self, most: int, *, name: str, after_each: Nothing = lambda: None) -> None:
        super().__init__(max_workers=most)
        self._name = name
        self._most = most
        self._after_each = after_each
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]
        self._calls = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self.threads = 0
        self._unfinished = 0
        self._closed = False
        self._all_done = threading.Condition(self._lock)

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        call = partial(function, *args, **kwargs)
        with self._lock:
            self._unfinished += 1
            if self._closed:
                # Of a task that outlives the coroutine which created it.
                self._start(self._perform, future, call)
                return future
            self._calls.put((future, call))
            if not self._idle.acquire(blocking=False) and self.threads < self._most:
                self.threads += 1
                self._start(self._work)
        return future

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        threading.Thread(target=target, args=args, name=self._name, daemon=True).start()

    def wait_until_done(self, seconds: float) -> bool:
        """Wait until all that was submitted has ended; False if that takes longer."""
        with self._all_done:
            return self._all_done.wait_for(lambda: not self._unfinished, seconds)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end when they have done what was submitted; never waits for them."""
        with self._lock:
            self._closed = True
            for _ in range(self.threads):
                self._calls.put(None)

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            self._perform(*item)
            del item
            self._idle.release()

    def _perform(self, future: Future[Any], call: Callable[[], Any]) -> None:
        if future.set_running_or_notify_cancel():
            try:
                value = call()
                self._after_each()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(value)
        with self._all_done:
            self._unfinished -= 1
            self._all_done.notify_all()


_threads: contextvars.ContextVar[DaemonThreads] = contextvars.ContextVar("jobs_threads")


class _Events(asyncio.SelectorEventLoop):
    """Each coroutine has threads of its own: what hangs, or is shut down, is in nobody's way."""

    def run_in_executor[*Ts, T](
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> "asyncio.Future[T]":
        own = _threads.get(None) if executor is None else executor
        return super().run_in_executor(own, func, *args)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Nothing: the loop goes on for all the others."""


class _Loop:
    """An event loop in a thread of its own, which nothing that a coroutine does can end."""

    def __init__(self) -> None:
        self.events = _Events()
        self._attempts = 0
        self._given_up = False
        threading.Thread(target=self._serve, name="jobs-loop", daemon=True).start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.events)
        while not self._given_up or self._attempts:
            try:
                self.events.run_forever()
            except BaseException:
                # SystemExit in a callback, which would end the coroutines of all other jobs.
                logger.exception("the event loop was interrupted and goes on")
        self.events.close()

    def give_up(self) -> None:
        """Take no more; end with the last coroutine that is here."""
        self._given_up = True
        self.events.call_soon_threadsafe(self._end_if_idle)

    # In the loop's own thread.

    def arrived(self) -> None:
        self._attempts += 1

    def left(self) -> None:
        self._attempts -= 1
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._given_up and not self._attempts:
            self.events.stop()


class _Attempt:
    """One coroutine, from a seat to the loop and back."""

    def __init__(self, call: Call, tidy: Nothing) -> None:
        self._call = call
        self._tidy = tidy
        self._threads = DaemonThreads(MOST_THREADS, name="jobs-loop-thread", after_each=tidy)
        self._cancelled = False
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._begun = threading.Event()
        self._loop: _Loop | None = None
        self._task: asyncio.Task[tuple[Any, BaseException | None]] | None = None
        self.done: Future[Any] = Future()

    def start_on(self, loop: _Loop) -> bool:
        """True when the loop took it, False when it did not answer: then it must not any more."""
        self._loop = loop
        loop.events.call_soon_threadsafe(self._begin, loop)
        if self._begun.wait(SECONDS_TO_START):
            return True
        with self._lock:
            if not self._begun.is_set():
                self._loop = None
        return self._loop is not None

    def cancel(self) -> None:
        """Cancel the coroutine. From any thread; it may be told again."""
        self._cancelled = True
        if self._loop is not None and not self.done.done():
            with contextlib.suppress(RuntimeError):
                self._loop.events.call_soon_threadsafe(self._cancel)

    def wait_for_threads(self) -> None:
        """After a cancel, wait a while for what still runs in threads that the coroutine started."""
        if self._cancelled:
            self._threads.wait_until_done(SECONDS_FOR_THREADS)

    # In the loop's own thread.

    def _begin(self, loop: _Loop) -> None:
        with self._lock:
            if self._loop is not loop:
                return
            self._begun.set()
        loop.arrived()
        self._task = loop.events.create_task(self._perform(), context=self._context)
        self._task.add_done_callback(self._hand_over)
        self._task.add_done_callback(lambda _task: loop.left())

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _perform(self) -> tuple[Any, BaseException | None]:
        """(result, error): a task that raised SystemExit would end the loop."""
        thread = DaemonThreads(1, name="jobs-coroutine")
        _threads.set(self._threads)
        try:
            # Jobs do not share the thread, and so the connection, of their synchronous calls.
            async with ThreadSensitiveContext(executor=thread):
                return await self._call(), None
        except BaseException as error:
            return None, error
        finally:
            if thread.threads:
                thread.submit(self._tidy)
            thread.shutdown()
            self._threads.shutdown()

    def _hand_over(self, task: "asyncio.Task[tuple[Any, BaseException | None]]") -> None:
        if task.cancelled():
            self.done.set_exception(asyncio.CancelledError())
            return
        value, error = task.result()
        if error is None:
            self.done.set_result(value)
        else:
            self.done.set_exception(error)


_lock = threading.Lock()
_current: _Loop | None = None


def _the_loop(*, instead_of: _Loop | None) -> _Loop:
    """The loop of this process, started at the first need; a new one in place of one that is stuck."""
    global _current
    with _lock:
        if _current is None or _current is instead_of:
            _current = _Loop()
            if instead_of is not None:
                instead_of.give_up()
        return _current
