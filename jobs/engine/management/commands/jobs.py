"""`manage.py jobs`: what an operator asks and does without a browser."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db.models import Count, Q

from jobs.engine.kinds import Pause, pause, resume
from jobs.engine.lifecycle import Job
from jobs.engine.management.commands.runworker import chosen_kinds
from jobs.engine.row import Status


class Command(BaseCommand):
    help = "List how many jobs of each kind there are, or pause and resume kinds on all workers."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "action", nargs="?", choices=["list", "pause", "resume"], default="list"
        )
        parser.add_argument("kinds", nargs="?", help="as in import,email (default for list: all)")
        parser.add_argument("--message", default="", help="why it is paused, for those who wait")

    def handle(self, *args: Any, **options: Any) -> None:
        action = options["action"]
        if action != "list" and not options["kinds"]:
            raise CommandError(f"Which kinds? As in: manage.py jobs {action} import,email")
        for kind in chosen_kinds(options["kinds"]):
            self.stdout.write(getattr(self, f"_{action}")(kind, options["message"]))

    def _list(self, kind: type[Job], _message: str) -> str:
        counts = kind.objects.aggregate(
            **{status: Count("pk", filter=Q(status=status)) for status in Status.values}
        )
        paused = Pause.objects.using(kind.objects.db).filter(kind=kind.kind)
        told = ", ".join(f"{number} {status}" for status, number in counts.items())
        reasons = "; ".join(
            f"{row.reason}{': ' * bool(row.message)}{row.message}" for row in paused
        )
        return f"{kind.kind}: {told}" + (f" (paused by {reasons})" if reasons else "")

    def _pause(self, kind: type[Job], message: str) -> str:
        made = pause(kind.kind, message=message, using=kind.objects.db)
        return f"{kind.kind} is paused." if made else f"{kind.kind} was paused already."

    def _resume(self, kind: type[Job], _message: str) -> str:
        """Lift every pause, whatever made it: an operator knows best."""
        using = kind.objects.db
        reasons = list(
            Pause.objects.using(using).filter(kind=kind.kind).values_list("reason", flat=True)
        )
        lifted = [reason for reason in reasons if resume(kind.kind, reason=reason, using=using)]
        return f"{kind.kind} goes on." if lifted else f"{kind.kind} was not paused."
