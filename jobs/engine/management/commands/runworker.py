"""`manage.py runworker`: flags and signals, then Worker.run()."""

import signal
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from jobs.engine.conf import config, parse_seats
from jobs.engine.lifecycle import Job
from jobs.engine.worker import Worker


class Command(BaseCommand):
    help = "Run jobs until SIGTERM or SIGINT. A second signal hands running jobs back at once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--kinds", help="only these kinds, as in import,email (default: all)")
        parser.add_argument(
            "--seats", default="", help="as in import=4,email=8 (default: JOBS['SEATS'])"
        )
        parser.add_argument("--grace", type=float, help="seconds that running jobs have at a stop")
        parser.add_argument(
            "--burst",
            action="store_true",
            help="rescue, run what is due and what that enqueues, then exit 0",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        kinds = chosen_kinds(options["kinds"])
        worker = Worker(
            kinds,
            seats=chosen_seats(options["seats"], kinds),
            grace_seconds=chosen_grace(options["grace"]),
            burst=options["burst"],
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: worker.stop())
        self.stderr.write(f"Worker for {', '.join(kind.kind for kind in kinds)} is ready.")
        sys.exit(worker.run())


def chosen_kinds(names: str | None) -> list[type[Job]]:
    """The kinds with these comma-separated short names; raises CommandError."""
    known = {kind.kind: kind for kind in Job.kinds()}
    if not known:
        raise CommandError("No kind of job is installed.")
    if names is None:
        return list(known.values())
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = sorted(set(wanted) - set(known))
    if unknown or not wanted:
        raise CommandError(
            f"Unknown kind: {', '.join(unknown) or 'none given'}. Kinds: {', '.join(sorted(known))}."
        )
    return [known[name] for name in dict.fromkeys(wanted)]


def chosen_seats(given: str, kinds: list[type[Job]]) -> dict[str, int]:
    """`import=4` over the settings; raises CommandError."""
    try:
        seats = parse_seats(given)
    except ValueError as error:
        raise CommandError(str(error)) from None
    unknown = sorted(set(seats) - {kind.kind for kind in kinds})
    if unknown:
        raise CommandError(f"--seats names {', '.join(unknown)}, which this worker does not run.")
    return {**config().seats, **seats}


def chosen_grace(seconds: float | None) -> float | None:
    if seconds is not None and seconds < 0:
        raise CommandError("--grace is a number of seconds from 0.")
    return seconds
