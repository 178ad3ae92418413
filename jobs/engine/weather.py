"""Lost databases are weather: wait a little longer each time, say so once, go on."""

import logging
import random

from django.db import DatabaseError, InterfaceError, connections, reset_queries
from django.db.utils import Error

logger = logging.getLogger(__name__)

FIRST_WAIT = 0.1
LONGEST_WAIT = 2.0

SICK = (DatabaseError, InterfaceError, Error)


class Weather:
    """The back-off of one loop."""

    LONGEST = LONGEST_WAIT

    def __init__(self, who: str) -> None:
        self._who = who
        self._wait = 0.0

    def bad(self, error: BaseException) -> float:
        """Note a failure, drop this thread's connections; returns the seconds to wait."""
        for connection in connections.all(initialized_only=True):
            connection.close_if_unusable_or_obsolete()
        if not self._wait:
            logger.warning("%s: the database does not answer, trying on: %s", self._who, error)
        self._wait = min(LONGEST_WAIT, max(FIRST_WAIT, self._wait * 2))
        return self._wait * random.uniform(0.8, 1.2)  # noqa: S311

    def good(self) -> None:
        # Under DEBUG each connection remembers its queries, and these loops live long.
        reset_queries()
        if self._wait:
            logger.warning("%s: the database is back", self._who)
        self._wait = 0.0
