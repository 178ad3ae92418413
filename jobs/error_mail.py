"""Errors of pages, mailed to ADMINS, so that a mail never fails because a mail failed.

Imported while logging is set up, before there are models.
"""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from django.conf import settings
from django.db.utils import InterfaceError, OperationalError
from django.utils.log import AdminEmailHandler
from django.utils.module_loading import import_string

from jobs.engine.text import clean

logger = logging.getLogger(__name__)

MOST_MAILS = 10
MAILS_PER_SECONDS = 3600.0
LONGEST_SUBJECT = 500
LONGEST_TEXT = 500_000

_delivering: ContextVar[bool] = ContextVar("delivering", default=False)


@contextlib.contextmanager
def delivering() -> Iterator[None]:
    """What is logged meanwhile, in this thread, is about a mail and makes none."""
    token = _delivering.set(True)
    try:
        yield
    finally:
        _delivering.reset(token)


class ErrorMailHandler(AdminEmailHandler):
    """Django's handler; what cannot be queued is logged, never raised.

    At most MOST_MAILS an hour: who meets an error a thousand times is told ten times.
    """

    def __init__(self, *args: Any, hide: str = "", **options: Any) -> None:
        """`hide` is the path of a function that takes secrets out of what is mailed."""
        super().__init__(*args, **options)
        self._hide: Callable[[str], str] = import_string(hide) if hide else str
        self._counting = threading.Lock()
        self._mailed: deque[float] = deque()

    def emit(self, record: logging.LogRecord) -> None:
        if not settings.ADMINS or _delivering.get() or _is_about_a_mail(record):
            return
        if _is_of_a_lost_database(record):
            # A page that waited for a locked database must not wait as long for its mail.
            logger.warning("this error is not mailed: the database that queues mails is away")
            return
        if not self.may_mail():
            return
        try:
            super().emit(record)
        except Exception:
            # The transaction is broken, the database away: whoever logged must not suffer for it.
            logger.exception("an error mail cannot be queued")

    def may_mail(self) -> bool:
        """Whether one more is within the limit of this process; the log has all of them."""
        now = time.monotonic()
        with self._counting:
            while self._mailed and now - self._mailed[0] > MAILS_PER_SECONDS:
                self._mailed.popleft()
            if len(self._mailed) >= MOST_MAILS:
                return False
            self._mailed.append(now)
            return True

    def forget(self) -> None:
        """Begin to count anew."""
        with self._counting:
            self._mailed.clear()

    def send_mail(self, subject: Any, message: Any, *args: Any, **kwargs: Any) -> None:
        subject = clean(self._hide(str(subject)), limit=LONGEST_SUBJECT)
        text = clean(self._hide(str(message)), limit=LONGEST_TEXT)
        super().send_mail(subject, text, *args, **kwargs)


def _is_about_a_mail(record: logging.LogRecord) -> bool:
    """The engine logs what became of a job with the job among the arguments."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    return any(getattr(argument, "kind", None) == "email" for argument in arguments)


def _is_of_a_lost_database(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return any(isinstance(one, (OperationalError, InterfaceError)) for one in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and all that it came from, each once."""
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [one.__cause__, one.__context__]
