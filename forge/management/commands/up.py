"""`manage.py up`, as Django's list of commands knows it; the work is in forge.up."""

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from forge import up


class Command(BaseCommand):
    help = up.HELP
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        up.add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        given = ["--host", options["host"], "--port", str(options["port"])]
        sys.exit(up.main(given + ["--demo"] * options["demo"]))
