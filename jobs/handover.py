"""One attempt to hand a mail over to its provider, after which no mail is sent twice or lost."""

import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, cast

from django.core.mail import EmailMessage
from django.db.models import Q
from django.db.models.functions import Now

from jobs import delivery
from jobs.delivery import Receipt, Unauthorized, Unsure
from jobs.engine.execution import Run
from jobs.engine.lifecycle import LostClaim
from jobs.engine.retry import Cancelled, Failed, InDoubt, Permanent, RetryAfter, Snooze
from jobs.engine.weather import SICK
from jobs.mail_addresses import bare, normal_all
from jobs.pacing import is_its_moment, plan

if TYPE_CHECKING:
    from jobs.models.email_job import EmailJob

logger = logging.getLogger(__name__)

SECONDS_TO_BE_FOUND = 20.0
"""So long after the hand-over a provider may need to take a mail, and until it is found there.

Longer than the answer to a hand-over is waited for.
"""
SECONDS_TO_ASK_AGAIN = 60.0
SECONDS_IN_DOUBT = 2 * 3600.0
"""So long after the hand-over a provider that does not answer is asked whether it took the mail.

Longer than the longest back-off, after which a last attempt begins to ask.
"""
CANCELLED = "It was cancelled before it left."
TOO_LATE = "It was not sent in time: what it says is over."
NOT_THERE = "the provider does not have it"
IN_DOUBT = "nobody knows whether it was sent"


class Handover:
    """The job's own columns are the memory: what was begun, who has it, when it may leave."""

    def __init__(self, job: "EmailJob", run: Run) -> None:
        self._job = job
        self._run = run
        self._service = delivery.provider()
        self._started = cast(datetime, job.started_at)
        self._is_last = job.attempts >= job.max_attempts

    def perform(self) -> Receipt:
        """Deliver to those who do not have it; raises Failed and Snooze, and Unauthorized."""
        try:
            return self._found() or self._delivered()
        except Failed as error:
            over = isinstance(error, Permanent) or (
                self._is_last and not isinstance(error, InDoubt)
            )
            if not (self._job.accepted and over):
                raise
            # Some have it, so it did not fail: the others stand beside it.
            rest = self._rest(normal_all(self._job.recipients))
            return Receipt(refused={bare(one): str(error) for one in rest})

    # An earlier attempt that handed it over, and of which nobody knows how it ended.

    def _found(self) -> Receipt | None:
        """The receipt of that attempt, where the provider can look it up."""
        job, service = self._job, self._service
        if job.handed_over_at is None or not service.can_find:
            return None
        ago = (self._started - job.handed_over_at).total_seconds()
        try:
            found = service.find(str(job.pk))
        except Failed as error:
            if self._is_last:
                raise self._later_or_never(error, left=SECONDS_IN_DOUBT - ago) from error
            raise
        if found is None and ago < SECONDS_TO_BE_FOUND:
            raise Snooze(SECONDS_TO_BE_FOUND - ago, "Its provider may not find it yet.")
        return found

    @staticmethod
    def _later_or_never(error: Failed, *, left: float) -> Exception:
        """What a look-up that failed means in the last attempt, with so many seconds left to ask."""
        if left <= 0:
            return Failed(f"{error} In the end {IN_DOUBT}.")
        asked = error.seconds if isinstance(error, RetryAfter) else 0
        wait = min(max(SECONDS_TO_ASK_AGAIN, asked), left)
        return Snooze(wait, f"{error} It may have this mail.")

    # This attempt.

    def _delivered(self) -> Receipt:
        job = self._job
        self._check_that_it_may_leave()
        message = job.built()
        rest = self._rest(message.recipients())
        message.recipients = lambda: rest  # type: ignore[method-assign]
        self._let_go()
        try:
            return self._unless_later(self._service.deliver(message, key=str(job.pk)), message)
        except Unsure as error:
            raise self._unheard(error) from error
        except (Failed, Unauthorized):
            self._take_back()
            raise

    def _let_go(self) -> None:
        """Write that the mail leaves, before it does, if it may at this very moment.

        Raises LostClaim, Permanent when it is too late, and like `Run.check`.
        """
        job = self._job
        self._run.check()
        wanted = Q(cancel_requested_at=None) & (Q(not_after=None) | Q(not_after__gt=Now()))
        try:
            job.note(among=wanted, handed_over_at=Now(), leaves_at=None)
        except LostClaim:
            rows = type(job).objects.using(job._state.db).filter(pk=job.pk, claim=job.claim)
            if rows.filter(cancel_requested_at__isnull=False).exists():
                raise Cancelled(CANCELLED) from None
            if rows.filter(not_after__lte=Now()).exists():
                raise Permanent(TOO_LATE) from None
            raise

    def _take_back(self) -> None:
        """Write that the mail did not leave. What its provider said counts, written or not."""
        try:
            self._job.note(handed_over_at=None)
        except (LostClaim, *SICK) as error:
            # So it is looked up before it is sent again, which costs no more than a question.
            logger.warning("%s: it cannot be written that it did not leave: %s", self._job, error)

    def _unheard(self, unsure: Unsure) -> Failed:
        """What a lost answer means; after the last attempt it is asked for, and nothing is sent."""
        if not self._is_last:
            return unsure.failure()
        if not self._service.can_find:
            return Failed(f"{unsure} In the end {IN_DOUBT}.")
        return InDoubt(max(SECONDS_TO_BE_FOUND, unsure.seconds or 0), str(unsure))

    def _check_that_it_may_leave(self) -> None:
        """Raise Permanent when it is too late for that, Snooze while its mailer's pace forbids it."""
        job = self._job
        if job.attempts > job.max_attempts:
            known = NOT_THERE if self._service.can_find else IN_DOUBT
            raise Permanent(f"Nobody heard how its last attempt ended. In the end {known}.")
        if job.not_after is not None and self._started >= job.not_after:
            raise Permanent(TOO_LATE)
        self._wait_for_its_moment()
        if job.handed_over_at is not None and not self._service.can_find:
            logger.warning("%s: %s already; it is sent again", job, IN_DOUBT)

    def _wait_for_its_moment(self) -> None:
        job = self._job
        per_minute = delivery.per_minute(job.mailer)
        if per_minute is None or is_its_moment(
            job.leaves_at, now=self._started, per_minute=per_minute
        ):
            return
        wait = plan(job, per_minute=per_minute)
        if wait > 0:
            raise Snooze(wait, f"It waits for its turn: {per_minute} mails leave in a minute.")

    def _unless_later(self, receipt: Receipt, message: EmailMessage) -> Receipt:
        """The receipt; raises Failed when some may have the mail later, who alone get it then."""
        if not receipt.later:
            return receipt
        if self._is_last:
            return replace(receipt, refused={**receipt.refused, **receipt.later})
        job = self._job
        sent = {bare(one) for one in message.recipients()} - {*receipt.refused, *receipt.later}
        job.note(
            accepted=[*job.accepted, *sorted(sent)],
            refused={**job.refused, **receipt.refused},
            provider_answer=job.answers(receipt),
        )
        raise Failed("; ".join(f"{to}: {words}" for to, words in receipt.later.items()))

    def _rest(self, recipients: Iterable[str]) -> list[str]:
        """Those for whom the provider has not decided in an earlier attempt."""
        job = self._job
        decided = {*job.accepted, *job.refused} if job.accepted else set()
        return [one for one in recipients if bare(one) not in decided]
