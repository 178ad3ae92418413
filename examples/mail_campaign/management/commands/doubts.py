"""`manage.py doubts CAMPAIGN`: the addresses of which only a person can say whether they were mailed."""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.db.models.functions import Now

from mail_campaign.models import Recipient
from mail_campaign.tasks import send_batch

# Longer than a mail may be under way: the server has 30 s for each of its answers.
UNDER_WAY = timedelta(minutes=5)


class Command(BaseCommand):
    help = "List the mails that were begun and never marked, or settle one of them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("campaign", type=int)
        settle = parser.add_mutually_exclusive_group()
        settle.add_argument("--sent", metavar="ADDRESS", help="the mail server has it")
        settle.add_argument("--again", metavar="ADDRESS", help="the mail server never had it")

    def handle(self, *args: Any, campaign: int, **options: Any) -> None:
        doubts = Recipient.objects.filter(
            campaign=campaign, state=Recipient.State.SENDING, begun_at__lt=Now() - UNDER_WAY
        )
        address = options["sent"] or options["again"]
        if address:
            state = Recipient.State.SENT if options["sent"] else Recipient.State.WAITING
            self.settle(doubts.filter(address=address).first(), state)
        for doubt in doubts.order_by("begun_at"):
            self.stdout.write(f"{doubt.address} {doubt.message_id} {doubt.begun_at:%F %T}")

    def settle(self, doubt: Recipient | None, state: Recipient.State) -> None:
        if doubt is None:
            raise CommandError("This address is not among the doubts.")
        with transaction.atomic():
            doubt.end(state)
            if state == Recipient.State.WAITING:
                send_batch.enqueue(doubt.campaign_id, doubt.pk, doubt.pk)
