"""How an enqueue wakes a sleeping worker, and how a change reaches the web process.

Hints only: polling makes it right. PostgreSQL carries them by NOTIFY without a payload, in the
transaction that they are about. On SQLite a watcher sees that somebody else committed.
"""

import contextlib
import logging
import random
import selectors
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from jobs.engine.enqueueing import changed, wanted

logger = logging.getLogger(__name__)

CHANGED = "jobs_changed"
SQLITE_INTERVAL = 0.025
# With a look each second, this is still less than one transaction a second.
PROBE_AFTER = 30.0
PROBE_TIMEOUT = 5.0


def channel_of(kind: str) -> str:
    """The channel that a kind's workers listen to."""
    return f"jobs_wanted_{kind}"


def own_connection(alias: str) -> BaseDatabaseWrapper:
    """A connection that no pool knows, for a thread that must not wait for a free one."""
    wrapper: BaseDatabaseWrapper = connections[alias].copy()
    options = dict(wrapper.settings_dict.get("OPTIONS") or {})
    options.pop("pool", None)
    wrapper.settings_dict["OPTIONS"] = options
    return wrapper


@contextlib.contextmanager
def using_own_connection(alias: str) -> Iterator[None]:
    """Queries of the calling thread go through a connection that no pool knows.

    A pool backs off for longer and longer while its server is away, and it may be exhausted.
    """
    before = connections[alias]
    connections[alias] = mine = own_connection(alias)
    try:
        yield
    finally:
        connections[alias] = before
        _close_quietly(mine)


def _notify(channel: str, using: str) -> None:
    connection = connections[using]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, '')", [channel])


def _on_wanted(*, kind: str, using: str, **_kwargs: Any) -> None:
    _notify(channel_of(kind), using)


def _on_changed(*, using: str, **_kwargs: Any) -> None:
    _notify(CHANGED, using)


def connect_signals() -> None:
    wanted.connect(_on_wanted, dispatch_uid="jobs.engine.wakeup")
    changed.connect(_on_changed, dispatch_uid="jobs.engine.wakeup")


class Waker(threading.Thread):
    """Calls `ring` whenever one of `channels` may have news; re-made connections ring too."""

    def __init__(
        self, channels: Sequence[str], ring: Callable[[], None], *, using: str = DEFAULT_DB_ALIAS
    ) -> None:
        super().__init__(name="jobs-waker", daemon=True)
        self._channels = channels
        self._ring = ring
        self._using = using
        self._closing = threading.Event()
        self._warned = False
        self._interrupted, self._interrupt = socket.socketpair()
        self.ready = threading.Event()
        """Set while hints are being heard."""

    def close(self) -> None:
        """End soon; nothing is rung any more."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._interrupt.send(b".")

    def run(self) -> None:
        wait = 0.1
        while not self._closing.is_set():
            connection = own_connection(self._using)
            try:
                connection.connect()
                wait = 0.1
                if connection.vendor == "postgresql":
                    self._listen(connection)
                else:
                    self._watch(connection)
            except Exception as error:
                # Whatever went wrong here, polling goes on; only hints are missing.
                logger.info("wake-ups are interrupted: %s", error)
                wait = min(5.0, wait * 2)
            finally:
                self.ready.clear()
                _close_quietly(connection)
            self._closing.wait(wait * random.uniform(0.8, 1.2))  # noqa: S311
        self._interrupted.close()
        self._interrupt.close()

    def _watch(self, connection: BaseDatabaseWrapper) -> None:
        """SQLite: data_version moves when another connection commits."""
        raw: Any = connection.connection
        seen = None
        while not self._closing.is_set():
            (version,) = raw.execute("PRAGMA data_version").fetchone()
            if version != seen:
                seen = version
                self._ring()
                self.ready.set()
            self._closing.wait(SQLITE_INTERVAL)

    def _listen(self, connection: BaseDatabaseWrapper) -> None:
        """PostgreSQL: LISTEN, and send ourselves a word whenever it was silent for long."""
        probe = f"jobs_probe_{uuid.uuid4().hex}"
        with connection.cursor() as cursor:
            for channel in (*self._channels, probe):
                cursor.execute(f'LISTEN "{channel}"')
        raw: Any = connection.connection
        self._try_out(connection, probe)
        # What was sent while nobody listened is found by looking once.
        self._ring()
        with selectors.DefaultSelector() as selector:
            for side in (raw, self._interrupted):
                selector.register(side, selectors.EVENT_READ)
            while not self._closing.is_set():
                silent = not selector.select(PROBE_AFTER)
                heard = {note.channel for note in raw.notifies(timeout=0)}
                if silent and not heard:
                    self._probe(connection, probe)
                elif heard - {probe}:
                    self._ring()

    def _try_out(self, connection: BaseDatabaseWrapper, channel: str) -> None:
        """Find out whether the word of another session arrives here, and warn once if not.

        Our own would say nothing: a pooler in transaction mode may well give us the same session
        for LISTEN and for NOTIFY, and a session hears itself.
        """
        other = own_connection(self._using)
        try:
            if self._probe(connection, channel, sender=other):
                self.ready.set()
                return
        finally:
            _close_quietly(other)
        if not self._warned:
            self._warned = True
            logger.warning(
                "NOTIFY does not arrive on this connection (a pooler in transaction mode?). "
                "Jobs are found by polling, which takes up to JOBS['POLL_SECONDS']."
            )

    def _probe(
        self,
        connection: BaseDatabaseWrapper,
        channel: str,
        *,
        sender: BaseDatabaseWrapper | None = None,
    ) -> bool:
        """Send a word, which fails where the connection is dead; True if anything was heard."""
        with (sender or connection).cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, '')", [channel])
        raw: Any = connection.connection
        heard = [note.channel for note in raw.notifies(timeout=PROBE_TIMEOUT, stop_after=1)]
        if heard and heard != [channel]:
            self._ring()
        return bool(heard)


def _close_quietly(connection: BaseDatabaseWrapper) -> None:
    try:
        connection.close()
    except Exception as error:
        logger.debug("closing a listening connection: %s", error)
