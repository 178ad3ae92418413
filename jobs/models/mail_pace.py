"""How many mails of one mailer leave in a minute, over all workers."""

from typing import Any, Self

from django.db import models, router
from django.db.models.functions import Now


class MailPace(models.Model):
    """The next free moment of a mailer that sends no more than so many mails a minute."""

    mailer = models.CharField(primary_key=True, max_length=100)
    next_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.mailer

    @classmethod
    def hold(cls, mailer: str) -> Self:
        """The mailer's row, with the database's time as `now`; nobody else has it until commit."""
        rows = cls._default_manager.using(router.db_for_write(cls))
        locked: Any = rows.select_for_update().annotate(now=Now()).filter(pk=mailer)
        found: Self | None = locked.first()
        if found is None:
            rows.bulk_create([cls(mailer=mailer)], ignore_conflicts=True)
            found = locked.get()
        return found
