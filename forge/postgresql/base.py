"""Django's PostgreSQL backend, with a pool that gets over a restarted server at once."""

from typing import Any

from django.db.backends.postgresql import base
from psycopg import Error
from psycopg_pool import ConnectionPool


class DatabaseWrapper(base.DatabaseWrapper):
    """Draws from the pool until a connection answers.

    The check that the pool has itself waits longer and longer after each dead connection that it
    draws; a pool that had grown then answers with errors for half a minute after a restart.
    """

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        connection = super().get_new_connection(conn_params)
        while self.pool and not answers(connection):
            # The pool throws it away and makes a new one beside.
            self.pool.putconn(connection)
            connection = super().get_new_connection(conn_params)
        return connection


def answers(connection: Any) -> bool:
    try:
        ConnectionPool.check_connection(connection)
    except Error:
        return False
    return True
