"""Databases that restart, end sessions, or are away for a while."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
from django.db import connection, connections

from tests import postgres
from tests.workers import test_database_url


def impatient() -> dict[str, str]:
    """For a worker that does not wait 20 s for a lock before it takes SQLite for away."""
    return {"TEST_DATABASE_OPTIONS": '{"timeout": 0.2}'} if connection.vendor == "sqlite" else {}


@contextmanager
def outside() -> Iterator[Any]:
    """A connection to the test's own server that Django knows nothing of."""
    url = test_database_url().rsplit("/", 1)[0] + "/postgres"
    with psycopg.connect(url, autocommit=True) as raw:
        yield raw


def ask(sql: str) -> Any:
    """One value from the server, about the database `%s`; the question is no session of it."""
    with outside() as raw:
        return raw.execute(sql, [connection.settings_dict["NAME"]]).fetchone()[0]


def sessions(*, like: str = "%") -> int:
    """How many sessions the test's database has whose last statement was like this."""
    with outside() as raw:
        row = raw.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND query LIKE %s",
            [connection.settings_dict["NAME"], like],
        ).fetchone()
    return int(row[0])


def end_sessions(*, like: str = "%") -> int:
    """End those whose last statement was like this; returns how many."""
    connections.close_all()
    with outside() as raw:
        ended = raw.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = %s AND query LIKE %s AND pid <> pg_backend_pid()",
            [connection.settings_dict["NAME"], like],
        ).fetchone()
    return int(ended[0])


def leave_database() -> None:
    """Close what this process has open, so that its own dead connections are in nobody's way."""
    connections.close_all()
    if getattr(connection, "pool", None) is not None:
        connection.close_pool()


def interrupt_server() -> None:
    """Restart the server, or end every session where it is not ours to restart."""
    leave_database()
    if postgres.own_server is not None:
        postgres.own_server.restart()
    else:
        end_sessions()


@contextmanager
def database_away() -> Iterator[None]:
    """Meanwhile nobody writes: PostgreSQL lets nobody in, SQLite is locked by a stranger."""
    if connection.vendor == "sqlite":
        with closing(sqlite3.connect(connection.settings_dict["NAME"], timeout=20)) as stranger:
            stranger.isolation_level = None
            stranger.execute("BEGIN IMMEDIATE")
            yield
            stranger.execute("ROLLBACK")
        return
    leave_database()
    let_in(False)
    try:
        end_sessions()
        yield
    finally:
        let_in(True)


def let_in(people: bool) -> None:
    with outside() as raw:
        raw.execute(
            f'ALTER DATABASE "{connection.settings_dict["NAME"]}" ALLOW_CONNECTIONS {people}'
        )
