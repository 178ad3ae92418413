"""`manage.py runworker`: flags and signals, then Worker.run()."""

import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import InterfaceError, OperationalError, connections
from django.tasks import DEFAULT_TASK_QUEUE_NAME, task_backends

from jobs.engine.backend import JobsBackend
from jobs.engine.conf import config, parse_seats
from jobs.engine.crew import Crew
from jobs.engine.leaving import leave
from jobs.engine.lifecycle import Job
from jobs.engine.supervisor import Child, Supervisor
from jobs.engine.suspects import run_suspects, stop_on_signals

# After the grace period: to unwind handlers, and to write how they ended.
SECONDS_TO_LEAVE = 15
PASSED_ON = ("kinds", "seats", "queues", "grace", "settings", "pythonpath", "verbosity")


class Command(BaseCommand):
    help = "Run jobs until SIGTERM or SIGINT. A second signal hands running jobs back at once."

    _is_the_program = False

    def run_from_argv(self, argv: list[str]) -> None:
        # Called by other code, the process is not ours to end.
        self._is_the_program = True
        super().run_from_argv(argv)

    def create_parser(self, prog_name: str, subcommand: str, **options: Any) -> CommandParser:
        # What is passed on to the processes is found by its full name.
        return super().create_parser(prog_name, subcommand, **{**options, "allow_abbrev": False})

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--kinds", help="only these kinds, as in import,email (default: all)")
        parser.add_argument(
            "--seats", default="", help="as in import=4,email=8 (default: JOBS['SEATS'])"
        )
        parser.add_argument(
            "--queues", help="of the tasks only those in these queues, as in default,mail"
        )
        parser.add_argument("--grace", type=float, help="seconds that running jobs have at a stop")
        parser.add_argument("--processes", type=int, default=1, help="run so many of this worker")
        parser.add_argument(
            "--burst",
            action="store_true",
            help="rescue, run what is due and what that enqueues, then exit 0",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        kinds = chosen_kinds(options["kinds"])
        queues = chosen_queues(options["queues"], kinds)
        grace = chosen_grace(options["grace"])
        demand_tables(kinds)
        if options["processes"] != 1:
            sys.exit(run_processes(options, grace))
        crew = Crew(
            kinds,
            seats=chosen_seats(options["seats"], kinds),
            queues=queues,
            grace_seconds=grace,
            burst=options["burst"],
            suspects_body=partial(run_suspects, grace_seconds=grace, queues=queues),
        )
        stop_on_signals(crew)
        self.stderr.write(f"Worker for {', '.join(kind.kind for kind in kinds)} is ready.")
        code = crew.run()
        if self._is_the_program:
            leave(code)
        sys.exit(code)


def run_processes(options: Mapping[str, Any], grace: float | None) -> int:
    """Supervise so many workers like this one; returns the exit code."""
    number = options["processes"]
    if number < 1:
        raise CommandError("--processes is a number from 1.")
    if options["burst"]:
        raise CommandError("--burst ends, and --processes starts again what ends: choose one.")
    seconds = config().grace_seconds if grace is None else grace
    command = command_for_one(options)
    children = [Child(f"worker {index}", command) for index in range(1, number + 1)]
    return Supervisor(children, stop_seconds=seconds + SECONDS_TO_LEAVE).run()


def command_for_one(options: Mapping[str, Any]) -> list[str]:
    """The command line of one worker with these options, by the program that runs here."""
    program = [sys.argv[0]]
    if Path(sys.argv[0]).name in ("__main__.py", "django-admin"):
        program = ["-m", "django"]
    passed = [
        f"--{name}={value}" for name in PASSED_ON if (value := options.get(name)) not in (None, "")
    ]
    return [sys.executable, *program, "runworker", *passed]


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


def chosen_queues(names: str | None, kinds: list[type[Job]]) -> list[str]:
    """The comma-separated queues; raises CommandError for one that no alias in TASKS declares."""
    if names is None:
        return []
    if not any(kind.queued for kind in kinds):
        raise CommandError("--queues: none of the kinds of this worker has queues.")
    wanted = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    known = declared_queues()
    unknown = sorted(set(wanted) - known) if known is not None else []
    if unknown or not wanted:
        told = ", ".join(sorted(known or {DEFAULT_TASK_QUEUE_NAME}))
        raise CommandError(
            f"Unknown queue: {', '.join(unknown) or 'none given'}. Queues: {told}. "
            "Others are declared by QUEUES in TASKS."
        )
    return wanted


def declared_queues() -> set[str] | None:
    """The queues of all aliases of this engine, and that of plain functions; None where any may be."""
    declared = {DEFAULT_TASK_QUEUE_NAME}
    for alias in task_backends:
        try:
            backend = task_backends[alias]
        except ImproperlyConfigured as error:
            raise CommandError(f"TASKS[{alias!r}]: {error}") from None
        if isinstance(backend, JobsBackend):
            if not backend.queues:
                return None
            declared |= backend.queues
    return declared


def demand_tables(kinds: list[type[Job]]) -> None:
    """Raise CommandError when the database answers but lacks a table; one that is away may come."""
    for alias in {kind.objects.db for kind in kinds}:
        connection = connections[alias]
        try:
            there = set(connection.introspection.table_names())
        except (OperationalError, InterfaceError):
            continue
        finally:
            connection.close()
        tables = {kind._meta.db_table for kind in kinds if kind.objects.db == alias}
        if missing := sorted(tables - there):
            migrate = "manage.py migrate" + (f" --database {alias}" if alias != "default" else "")
            raise CommandError(f"The table {missing[0]} is missing: run {migrate} first.")


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
