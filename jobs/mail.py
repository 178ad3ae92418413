"""The mail backend that makes a job of every mail: what Django sends, the worker delivers."""

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from django.core.mail import EmailMessage, InvalidMailer
from django.core.mail.backends.base import BaseEmailBackend
from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, router, transaction

from jobs import attachments
from jobs.attachments import Attachment
from jobs.deliverable import check
from jobs.engine.columns import PRIORITIES
from jobs.engine.concurrency import keys
from jobs.engine.enqueueing import wanted
from jobs.mail_columns import read
from jobs.models.email_job import EmailJob

logger = logging.getLogger(__name__)


class QueuedEmailBackend(BaseEmailBackend):
    """Inserts an EmailJob for each mail, in the caller's transaction.

    OPTIONS: `priority` and `max_attempts` of its jobs, `at_once`, how many of them may be under way
    at the same time over all workers, and `per_minute`, how many of them may leave in a minute. The
    mail's header `Expires` becomes `not_after`.

    What is no mail raises ValueError, which says what is wrong, and then nothing is stored.
    `fail_silently` is about the database and the disk, as it is about the network elsewhere.
    """

    def __init__(
        self,
        fail_silently: bool = False,
        *,
        priority: int = 0,
        max_attempts: int | None = None,
        at_once: int | None = None,
        per_minute: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.fail_silently = fail_silently
        self.per_minute = per_minute
        given = {
            "priority": (priority, PRIORITIES),
            "max_attempts": (max_attempts, range(1, 1001)),
            "at_once": (at_once, range(1, 1001)),
            "per_minute": (per_minute, range(1, 60_001)),
        }
        for name, (value, allowed) in given.items():
            if value is not None and not (type(value) is int and value in allowed):
                told = f"{name!r} must be a whole number from {allowed[0]} to {allowed[-1]}."
                raise InvalidMailer(told, alias=kwargs.get("alias"))
        self._columns: dict[str, Any] = {"mailer": kwargs.get("alias") or "", "priority": priority}
        if max_attempts is not None:
            self._columns["max_attempts"] = max_attempts
        if at_once is not None:
            self._columns["concurrency_key"] = keys({f"mailer:{self._columns['mailer']}": at_once})

    def send_messages(self, email_messages: Iterable[EmailMessage]) -> int:
        """Enqueue all of them or none; returns how many."""
        rows, attached = self._rows(email_messages)
        try:
            _store(rows, attached)
        except (DatabaseError, InterfaceError, OSError) as error:
            if not self.fail_silently:
                raise
            logger.warning("%d mails are not queued: %s", len(rows), error)
            return 0
        return len(rows)

    def rehearse(self, email_messages: Iterable[EmailMessage]) -> None:
        """Cost and raise what `send_messages` does, in its database and at its time; keep nothing.

        No attached files are written.
        """
        rows, _attached = self._rows(email_messages)
        using = router.db_for_write(EmailJob)
        if using == DEFAULT_DB_ALIAS:
            _store_and_undo(rows, using)
        else:
            transaction.on_commit(partial(_store_and_undo, rows, using))

    def _rows(
        self, email_messages: Iterable[EmailMessage]
    ) -> tuple[list[dict[str, Any]], list[list[Attachment]]]:
        mails = [read(message) for message in email_messages]
        for columns, files in mails:
            check(columns, files)
        rows = [{**self._columns, **columns} for columns, _files in mails]
        return rows, [files for _columns, files in mails]


def _store_and_undo(rows: Sequence[dict[str, Any]], using: str) -> None:
    """The same statements as for rows that stay, and a commit that costs as much as theirs."""
    with transaction.atomic(using=using):
        with transaction.atomic(using=using):
            if using == DEFAULT_DB_ALIAS:
                _store(rows, [[] for _row in rows])
            else:
                EmailJob.objects.enqueue_many(rows)
            transaction.set_rollback(True, using=using)
        # A worker that wakes takes time from the page that is still being answered.
        wanted.send(EmailJob, kind=EmailJob.kind, using=using)


def _store(rows: Sequence[dict[str, Any]], attached: Sequence[list[Attachment]]) -> None:
    """Write the files, then the rows; without rows no files stay."""
    try:
        for row, files in zip(rows, attached, strict=True):
            row["attachments"] = attachments.write(row["id"], files)
        if len(rows) == 1:
            EmailJob.objects.enqueue(**rows[0])
        elif rows:
            with transaction.atomic(using=router.db_for_write(EmailJob)):
                EmailJob.objects.enqueue_many(rows)
    except BaseException:
        for row in rows:
            attachments.delete(row["id"])
        raise
