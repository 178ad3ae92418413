"""A campaign and whom it goes to. Each address is mailed once at the most."""

from typing import Any

from django.core.mail import make_msgid
from django.db import models
from django.db.models.functions import Now

MOST_TRIES = 5
"""So often an address is tried that the server only puts off."""


class Campaign(models.Model):
    subject = models.CharField(max_length=200)
    body = models.TextField()
    per_second = models.FloatField()

    def __str__(self) -> str:
        return self.subject


class Recipient(models.Model):
    class State(models.TextChoices):
        WAITING = "waiting"
        # Begun. It stays so when nobody can say whether the server took the mail: see `doubts`.
        SENDING = "sending"
        SENT = "sent"
        REFUSED = "refused"

    campaign = models.ForeignKey(Campaign, models.CASCADE)
    address = models.EmailField()
    state = models.CharField(max_length=7, choices=State, default=State.WAITING)
    message_id = models.CharField(max_length=200, blank=True, default="")
    begun_at = models.DateTimeField(null=True)
    answer = models.TextField(blank=True, default="")
    tries = models.PositiveSmallIntegerField(default=0, db_default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["campaign", "address"], name="mail_campaign_each_address_once"
            )
        ]

    def __str__(self) -> str:
        return self.address

    def begin(self) -> bool:
        """waiting → sending, committed before the first word to the server; False if not ours."""
        self.message_id = make_msgid(domain="example.org")
        columns = {"message_id": self.message_id, "begun_at": Now()}
        rows = Recipient.objects.filter(pk=self.pk, state=self.State.WAITING)
        return rows.update(state=self.State.SENDING, **columns) == 1

    def put_off(self, answer: str) -> None:
        """sending → waiting, as the server wants this one later; refused after the last try."""
        tries = self.tries + 1
        state = self.State.WAITING if tries < MOST_TRIES else self.State.REFUSED
        self.end(state, answer, tries=tries)

    def end(self, state: State, answer: str = "", **more: Any) -> None:
        """sending → waiting, sent or refused, unless a person decided otherwise meanwhile."""
        columns: dict[str, Any] = {"state": state, "answer": answer, **more}
        rows = Recipient.objects.filter(state=self.State.SENDING, message_id=self.message_id)
        rows.filter(pk=self.pk).update(**columns)
