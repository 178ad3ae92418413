"""How many mails of one mailer leave in a minute, over all workers."""

from typing import Any, ClassVar

from django.db import models
from django.db.models.functions import Now


class MailPace(models.Model):
    """The next free moment of a mailer that sends no more than so many mails a minute."""

    beside_jobs: ClassVar[bool] = True

    mailer = models.CharField(primary_key=True, max_length=100)
    next_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.mailer

    @staticmethod
    def hold(mailer: str, *, using: str) -> Any:
        """The mailer's row, with the database's time as `now`; nobody else has it until commit.

        None while somebody else has it, who may be frozen and is not waited for.
        """
        rows = MailPace.objects.using(using)
        mine: Any = rows.filter(pk=mailer)
        if not mine.exists():
            rows.bulk_create([MailPace(mailer=mailer)], ignore_conflicts=True)
        if not mine.select_for_update(skip_locked=True).exists():
            return None
        return mine.annotate(now=Now()).get()
