"""A campaign goes out in batches, one at a time over all workers, at the campaign's rate."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import batched

from django.core.mail import mailers
from django.core.validators import validate_email
from django.db import transaction
from django.tasks import task

from jobs.engine.tasks import JobContext, job_options
from mail_campaign.models import Campaign, Recipient
from mail_campaign.sending import send

ADDRESSES_IN_A_BATCH = 250


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
        ids = sorted(recipient.pk for recipient in recipients)
        batches = [(batch[0], batch[-1]) for batch in batched(ids, ADDRESSES_IN_A_BATCH)]
        send_batch.enqueue_many([((campaign.pk, *batch), {}) for batch in batches])
    return len(wanted)
