"""A campaign goes out in batches, one at a time over all workers, at the campaign's rate."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import batched

from django.core.mail import mailers
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import Max
from django.tasks import task

from jobs.engine.tasks import JobContext, Snooze, job_options
from mail_campaign.models import Campaign, Recipient
from mail_campaign.sending import SECONDS_TO_WAIT, send

ADDRESSES_IN_A_BATCH = 250
SECONDS_OF_A_BATCH = 1800
"""At most, at slow rates: half of its time limit."""


@task(takes_context=True)
@job_options(concurrency=("campaign:{campaign_id}", 1), max_attempts=10, max_running_seconds=3600)
def send_batch(context: JobContext, campaign_id: int, first: int, last: int) -> None:
    """Mail those of the recipients `first` to `last` with whom nobody has begun."""
    campaign = Campaign.objects.get(pk=campaign_id)
    batch = Recipient.objects.filter(campaign=campaign, pk__range=(first, last))
    waiting = list(batch.filter(state=Recipient.State.WAITING).order_by("pk"))
    with mailers.default as mailer:
        for done, recipient in enumerate(waiting):
            context.report(done=done, total=len(waiting), step="sending")
            # The next batch waits for this one, so that this is the rate of the whole campaign.
            with lasting(1 / campaign.per_second):
                send(mailer, campaign, recipient)
    # Those whom the server put off, each a bounded number of times: so this costs no attempt.
    tries = batch.filter(state=Recipient.State.WAITING).aggregate(most=Max("tries"))["most"]
    if tries:
        raise Snooze(SECONDS_TO_WAIT * 4 ** (tries - 1))


@contextmanager
def lasting(seconds: float) -> Iterator[None]:
    """Take at least that long."""
    end = time.monotonic() + seconds
    yield
    time.sleep(max(0.0, end - time.monotonic()))


def start(campaign: Campaign, addresses: Iterable[str]) -> int:
    """Save a campaign and enqueue its batches; returns to how many addresses it goes.

    Raises ValidationError for an address that is none, and then nothing is saved.
    """
    wanted = dict.fromkeys(address.strip().lower() for address in addresses)
    for address in wanted:
        validate_email(address)
    with transaction.atomic():
        campaign.save()
        recipients = Recipient.objects.bulk_create(
            (Recipient(campaign=campaign, address=address) for address in wanted), batch_size=1000
        )
        enqueue_batches(campaign, sorted(recipient.pk for recipient in recipients))
    return len(wanted)


def enqueue_batches(campaign: Campaign, ids: Sequence[int]) -> None:
    """Enqueue a job for each so many of the recipients, which are in order."""
    size = max(1, min(ADDRESSES_IN_A_BATCH, int(campaign.per_second * SECONDS_OF_A_BATCH)))
    batches = [(batch[0], batch[-1]) for batch in batched(ids, size)]
    send_batch.enqueue_many([((campaign.pk, *batch), {}) for batch in batches])
