"""A mail to be delivered."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.core.mail import EmailMessage
from django.db import models, transaction
from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobs import attachments, provider
from jobs.attachments import Attachment
from jobs.composing import composed
from jobs.delivery import Receipt, Unauthorized
from jobs.engine.execution import Run
from jobs.engine.lifecycle import Job, Refused
from jobs.engine.retry import InDoubt, Permanent, RetryAfter, Snooze
from jobs.engine.row import Status
from jobs.error_mail import delivering
from jobs.handover import Handover

SECONDS_UNTIL_PAUSED = 1.0


class EmailJob(Job):
    """One mail, to all its recipients.

    `not_after` makes it a secret mail, as one with a sign-in link: it is never sent after that
    time, no page shows its text, and the text is erased however the job ends. The text of any other
    mail is erased when it is delivered, and kept when it failed, so that it can be sent again.
    """

    kind = "email"
    defaults = {"max_attempts": 8}
    # A provider may take its time for each of a campaign's mails; a sign-in mail waits for none.
    urgent_seats = 2

    to = models.JSONField(gettext_lazy("to"), blank=True, default=list)
    cc = models.JSONField(gettext_lazy("copy to"), blank=True, default=list)
    bcc = models.JSONField(gettext_lazy("blind copy to"), blank=True, default=list)
    reply_to = models.JSONField(gettext_lazy("reply to"), blank=True, default=list)
    from_email = models.CharField(gettext_lazy("from"), max_length=500, blank=True, default="")
    subject = models.CharField(gettext_lazy("subject"), max_length=2000, blank=True, default="")
    text = models.TextField(gettext_lazy("text"), blank=True, default="")
    html = models.TextField("HTML", blank=True, default="")
    headers = models.JSONField(gettext_lazy("headers"), blank=True, default=list)
    attachments = models.JSONField(gettext_lazy("attachments"), blank=True, default=list)
    tags = models.JSONField(gettext_lazy("tags"), blank=True, default=list)
    mailer = models.CharField(gettext_lazy("mailer"), max_length=100, blank=True, default="")
    message_id = models.CharField("Message-ID", max_length=500, blank=True, default="")
    not_after = models.DateTimeField(gettext_lazy("not after"), null=True, blank=True)
    leaves_at = models.DateTimeField(gettext_lazy("leaves at"), null=True, blank=True)
    handed_over_at = models.DateTimeField(gettext_lazy("handed over"), null=True, blank=True)
    provider_message_id = models.CharField(
        gettext_lazy("id at the provider"), max_length=100, blank=True, default=""
    )
    provider_answer = models.TextField(
        gettext_lazy("the provider's answer"), blank=True, default=""
    )
    accepted = models.JSONField(
        # An older Forge that still runs while this is migrated knows nothing of the column.
        gettext_lazy("accepted recipients"),
        blank=True,
        default=list,
        db_default=[],
    )
    refused = models.JSONField(gettext_lazy("refused recipients"), blank=True, default=dict)
    erased_at = models.DateTimeField(gettext_lazy("text erased"), null=True, blank=True)

    class Meta(Job.Meta):
        verbose_name = gettext_lazy("mail")
        verbose_name_plural = gettext_lazy("mails")
        permissions = [("view_email_body", "Can read the text of mails")]

    # The work.

    def perform(self, run: Run) -> Receipt:
        """Hand the mail to the provider, unless an attempt whose end nobody knows has done that."""
        if self.erased_at is not None:
            raise Permanent(_erased())
        with delivering():
            try:
                return Handover(self, run).perform()
            except InDoubt:
                raise
            except RetryAfter as refusal:
                # A provider that says "at once" must not burn all attempts in a moment.
                wait = max(refusal.seconds, self.backoff(self.attempts))
                raise RetryAfter(wait, str(refusal)) from refusal
            except Unauthorized as refusal:
                using = self._state.db or "default"
                provider.stop_mail(str(refusal), probe_in=refusal.probe_in, using=using)
                raise Snooze(SECONDS_UNTIL_PAUSED) from None

    def answers(self, receipt: Receipt) -> str:
        """What the provider said in all attempts, those before which some have it already."""
        earlier = self.provider_answer if self.accepted else ""
        return "\n".join(filter(None, [earlier, receipt.answer]))

    def on_completed(self, result: Receipt) -> Mapping[str, Any]:
        transaction.on_commit(self.delete_files, using=self._state.db, robust=True)
        return {
            "provider_message_id": result.provider_message_id,
            "provider_answer": self.answers(result),
            "refused": {**self.refused, **result.refused},
        }

    def in_doubt(self) -> bool:
        return self.handed_over_at is not None

    def at_end(self, status: Status) -> Mapping[str, Any]:
        erased = {"text": "", "html": "", "erased_at": Now()}
        if self.is_secret:
            return {**erased, "headers": []}
        return erased if status == Status.COMPLETED else {}

    def on_over(self) -> None:
        if self.is_secret:
            self.delete_files()

    def check_requeue(self) -> None:
        if self.erased_at is not None and self.status != Status.COMPLETED:
            raise Refused(_erased())

    def delete_files(self) -> None:
        attachments.delete(self.pk)

    # The mail.

    @property
    def is_secret(self) -> bool:
        return self.not_after is not None

    @property
    def recipients(self) -> list[str]:
        return [*self.to, *self.cc, *self.bcc]

    def message(self, files: Iterable[Attachment] | None = None) -> EmailMessage:
        """The mail as Django's mailers take it, the same at each attempt.

        `files` in place of those on the disk. Raises ValueError for what is no mail,
        FileNotFoundError for an attachment that is gone.
        """
        if files is None:
            files = attachments.read(self.pk, self.attachments)
        return composed(self, files)

    def built(self) -> EmailMessage:
        """The mail; raises Permanent when it is none."""
        try:
            return self.message()
        except FileNotFoundError:
            raise Permanent("A file that was attached is gone from the disk.") from None
        except (ValueError, TypeError) as error:
            raise Permanent(f"This makes no mail: {error}") from error


def _erased() -> str:
    return _("Its text was erased when it ended, so it cannot be sent again.")
