"""`manage.py unmailed CAMPAIGN`: who was never mailed, and what the server said of it."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from mail_campaign.models import Campaign, Recipient
from mail_campaign.tasks import enqueue_batches


class Command(BaseCommand):
    help = "List the addresses that wait or were refused, or enqueue those that wait once more."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("campaign", type=int)
        again = "enqueue those that wait, as when their job has failed; ask for the refused by name"
        parser.add_argument("--again", metavar="ADDRESS", nargs="*", help=again)

    def handle(self, *args: Any, campaign: int, again: list[str] | None, **options: Any) -> None:
        found = Campaign.objects.filter(pk=campaign).first()
        if found is None:
            raise CommandError(f"There is no campaign {campaign}.")
        if again is not None:
            self.enqueue(found, again)
        states = (Recipient.State.WAITING, Recipient.State.REFUSED)
        for one in Recipient.objects.filter(campaign=found, state__in=states).order_by("pk"):
            self.stdout.write(f"{one.address} {one.state} {one.answer}".strip())

    def enqueue(self, campaign: Campaign, addresses: list[str]) -> None:
        rows = Recipient.objects.filter(campaign=campaign)
        with transaction.atomic():
            refused = rows.filter(state=Recipient.State.REFUSED, address__in=addresses)
            if refused.update(state=Recipient.State.WAITING, tries=0) != len(set(addresses)):
                raise CommandError("Not all of these addresses were refused.")
            waiting = rows.filter(state=Recipient.State.WAITING).order_by("pk")
            enqueue_batches(campaign, list(waiting.values_list("pk", flat=True)))
