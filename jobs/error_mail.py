"""Errors of pages, mailed to ADMINS, so that a mail never fails because a mail failed.

Imported while logging is set up, before there are models.
"""

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from django.utils.log import AdminEmailHandler

from jobs.engine.text import clean

logger = logging.getLogger(__name__)

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
    """Django's handler; what cannot be queued is logged, never raised."""

    def emit(self, record: logging.LogRecord) -> None:
        if _delivering.get() or _is_about_a_mail(record):
            return
        try:
            super().emit(record)
        except Exception:
            # The transaction is broken, the database away: whoever logged must not suffer for it.
            logger.exception("an error mail cannot be queued")

    def send_mail(self, subject: Any, message: Any, *args: Any, **kwargs: Any) -> None:
        subject = clean(str(subject), limit=LONGEST_SUBJECT)
        super().send_mail(subject, clean(str(message), limit=LONGEST_TEXT), *args, **kwargs)


def _is_about_a_mail(record: logging.LogRecord) -> bool:
    """The engine logs what became of a job with the job among the arguments."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    return any(getattr(argument, "kind", None) == "email" for argument in arguments)
