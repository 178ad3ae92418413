"""A mail to be delivered."""

import email
import email.policy
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from email.utils import format_datetime
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage, EmailMultiAlternatives
from django.db import models, transaction
from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobs import attachments, delivery, provider
from jobs.delivery import Receipt, Unauthorized, Unsure
from jobs.engine.execution import Run
from jobs.engine.lifecycle import Job, Refused
from jobs.engine.retry import Failed, Permanent, RetryAfter, Snooze
from jobs.engine.row import Status
from jobs.error_mail import delivering
from jobs.mail_addresses import bare, normal, normal_all

logger = logging.getLogger(__name__)

SECONDS_TO_BE_FOUND = 5.0
"""So long a provider may need before a mail that it took is found there."""
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
        if self.not_after is not None and self.started_at and self.started_at >= self.not_after:
            raise Permanent("It was not sent in time: what it says is over.")
        with delivering():
            try:
                return self._deliver()
            except RetryAfter as refusal:
                # A provider that says "at once" must not burn all attempts in a moment.
                wait = max(refusal.seconds, self.backoff(self.attempts))
                raise RetryAfter(wait, str(refusal)) from refusal
            except Unauthorized as refusal:
                provider.stop_mail(str(refusal), using=self._state.db or "default")
                raise Snooze(SECONDS_UNTIL_PAUSED) from None

    def _deliver(self) -> Receipt:
        try:
            return self._hand_over()
        except Failed as error:
            over = isinstance(error, Permanent) or self.attempts >= self.max_attempts
            if not (over and self.accepted):
                raise
            # Some have it, so it did not fail: the others stand beside it.
            refused = {bare(one): str(error) for one in self._rest(normal_all(self.recipients))}
            return Receipt(refused=refused)

    def _hand_over(self) -> Receipt:
        service, message = delivery.provider(), self._built()
        if self.handed_over_at is not None:
            found = self._look_up(service)
            if found is not None:
                return found
        # Written before the mail leaves, and fenced: who lost the claim sends nothing.
        self.report(handed_over_at=Now())
        try:
            return self._unless_later(service.deliver(message, key=str(self.pk)), message)
        except Unsure as error:
            reason = str(error)
            failed = Failed(reason) if error.seconds is None else RetryAfter(error.seconds, reason)
            raise failed from error
        except (Failed, Unauthorized):
            self.report(handed_over_at=None)
            raise

    def _unless_later(self, receipt: Receipt, message: EmailMessage) -> Receipt:
        """The receipt; raises Failed when some may have the mail later, who alone get it then."""
        if not receipt.later:
            return receipt
        if self.attempts >= self.max_attempts:
            return replace(receipt, refused={**receipt.refused, **receipt.later})
        sent = {bare(one) for one in message.recipients()} - {*receipt.refused, *receipt.later}
        self.report(
            accepted=[*self.accepted, *sorted(sent)],
            refused={**self.refused, **receipt.refused},
            provider_answer=self._answers(receipt),
        )
        raise Failed("; ".join(f"{to}: {words}" for to, words in receipt.later.items()))

    def _answers(self, receipt: Receipt) -> str:
        earlier = self.provider_answer if self.accepted else ""
        return "\n".join(filter(None, [earlier, receipt.answer]))

    def _rest(self, recipients: Iterable[str]) -> list[str]:
        """Those for whom the provider has not decided in an earlier attempt."""
        decided = {*self.accepted, *self.refused} if self.accepted else set()
        return [one for one in recipients if bare(one) not in decided]

    def _look_up(self, service: delivery.Provider) -> Receipt | None:
        """The receipt of the attempt that handed it over; raises Snooze when it is too early."""
        if not service.can_find:
            logger.warning("%s: nobody knows whether it was sent already; it is sent again", self)
            return None
        found = service.find(str(self.pk))
        if found is None and self.started_at and self.handed_over_at:
            ago = (self.started_at - self.handed_over_at).total_seconds()
            if ago < SECONDS_TO_BE_FOUND:
                raise Snooze(SECONDS_TO_BE_FOUND - ago)
        return found

    def on_completed(self, result: Receipt) -> Mapping[str, Any]:
        transaction.on_commit(self.delete_files, using=self._state.db, robust=True)
        return {
            "provider_message_id": result.provider_message_id,
            "provider_answer": self._answers(result),
            "refused": {**self.refused, **result.refused},
        }

    def at_end(self, status: Status) -> Mapping[str, Any]:
        erased = {"text": "", "html": "", "erased_at": Now()}
        if self.is_secret:
            return {**erased, "headers": []}
        return erased if status == Status.COMPLETED else {}

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

    def message(self) -> EmailMessage:
        """The mail as Django's mailers take it, the same at each attempt.

        Raises ValueError for what is no mail, FileNotFoundError for an attachment that is gone.
        """
        lists = ("to", "cc", "bcc", "reply_to")
        options: dict[str, Any] = {name: normal_all(getattr(self, name)) for name in lists}
        if not self.recipients:
            raise ValueError("It has no recipient.")
        sender = normal(self.from_email or settings.DEFAULT_FROM_EMAIL)
        built = EmailMultiAlternatives(
            self.subject, self.text or self.html, sender, headers=self._headers(sender), **options
        )
        if self.html and not self.text:
            built.content_subtype = "html"
        elif self.html:
            built.attach_alternative(self.html, "text/html")
        for one in attachments.read(self.pk, self.attachments):
            if one.part:
                parsed = email.message_from_bytes(one.content, policy=email.policy.default)
                built.attach(parsed)
            else:
                built.attach(one.name or None, one.content, one.mimetype)
        built.tags = list(self.tags)  # type: ignore[attr-defined]
        return built

    def _headers(self, sender: str) -> dict[str, str]:
        headers = {str(name): str(value) for name, value in self.headers}
        headers["Message-ID"] = self.message_id or message_id_of(self.pk, sender=sender)
        if not any(name.lower() == "date" for name in headers):
            headers["Date"] = format_datetime(self.created_at)
        return headers

    def _built(self) -> EmailMessage:
        try:
            built = self.message()
            rest = self._rest(built.recipients())
            built.recipients = lambda: rest  # type: ignore[method-assign]
            return built
        except FileNotFoundError:
            raise Permanent("A file that was attached is gone from the disk.") from None
        except (ValueError, TypeError) as error:
            raise Permanent(f"This makes no mail: {error}") from error


def message_id_of(job_id: Any, *, sender: str) -> str:
    """The Message-ID of a mail: known before it is sent, and the same however often that is."""
    return f"<{job_id}@{bare(sender).rpartition('@')[2]}>"


def _erased() -> str:
    return _("Its text was erased when it ended, so it cannot be sent again.")
