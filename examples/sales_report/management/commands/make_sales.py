"""`manage.py make_sales 50000`: something to report on."""

import random
from argparse import ArgumentParser
from datetime import date, timedelta
from typing import Any

from django.core.management.base import BaseCommand

from sales_report.models import Sale


class Command(BaseCommand):
    help = "Make so many sales, spread over a year."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("number", type=int)
        parser.add_argument("--year", type=int, default=2026)

    def handle(self, *args: Any, number: int, year: int, **options: Any) -> None:
        first = date(year, 1, 1)
        chance = random.Random(year)  # noqa: S311 - the same sales each time
        sales = (
            Sale(day=first + timedelta(days=chance.randrange(365)), cents=chance.randrange(10_000))
            for _ in range(number)
        )
        Sale.objects.bulk_create(sales, batch_size=1000)
        self.stdout.write(f"{Sale.objects.count()} sales.")
