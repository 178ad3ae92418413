"""`manage.py setuplink`: the one-time link of a Forge that `up` did not start."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, ProgrammingError

from accounts.setup import setup_link


class Command(BaseCommand):
    help = "Print a one-time link that makes the first administrator. It ends the links before it."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            link = setup_link(settings.FORGE_URL)
        except (OperationalError, ProgrammingError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise CommandError(
                f"The database cannot be used: {reason}. Was `manage.py migrate` run?"
            ) from None
        if link is None:
            raise CommandError("This Forge has an administrator already, who can make others.")
        self.stdout.write(link)
