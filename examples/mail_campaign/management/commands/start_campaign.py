"""`manage.py start_campaign SUBJECT BODY ADDRESSES`: workers send it."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from mail_campaign.models import Campaign
from mail_campaign.tasks import start


class Command(BaseCommand):
    help = "Mail a text to each address of a file, at a limited rate."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("subject")
        parser.add_argument("body", type=Path, help="a file with the text")
        parser.add_argument("addresses", type=Path, help="a file with an address on each line")
        parser.add_argument("--per-second", type=float, default=10)

    def handle(self, *args: Any, **options: Any) -> None:
        if not 0.01 <= options["per_second"] <= 1000:
            raise CommandError("--per-second is a number from 0.01 to 1000.")
        campaign = Campaign(subject=options["subject"], per_second=options["per_second"])
        try:
            campaign.body = options["body"].read_text()
            lines = options["addresses"].read_text().splitlines()
            number = start(campaign, filter(str.strip, lines))
        except OSError as error:
            raise CommandError(str(error)) from None
        except ValidationError as error:
            raise CommandError(f"{' '.join(error.messages)} {error.params}") from None
        self.stdout.write(f"Campaign {campaign.pk} goes to {number} addresses.")
