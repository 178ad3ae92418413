"""`manage.py importrepo`: the import form for the command line, local paths included."""

import contextlib
import signal
import sys
import threading
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.db.models.functions import Lower
from django.template.defaultfilters import filesizeformat
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from jobs.engine.row import Status
from jobs.engine.wakeup import CHANGED, Waker
from jobs.import_feed import with_places
from jobs.models import ImportJob
from jobs.models.import_job import keys_of, name_taken
from repositories.models import Repository, Visibility
from repositories.slugs import validate_slug
from repositories.sources import check_local, check_source, suggested_slug

SECONDS_BETWEEN_LOOKS = 1.0
EXIT_INTERRUPTED = 130


class Command(BaseCommand):
    help = "Import a repository from a clone URL or a path of this machine, and show its progress."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("source", metavar="URL-or-path")
        parser.add_argument(
            "--owner", help="handle of the owner (default: the first administrator)"
        )
        parser.add_argument(
            "--name", default="", help="name of the repository (default: from the source)"
        )
        parser.add_argument("--public", action="store_true", help="let everybody see it")
        parser.add_argument("--no-wait", action="store_true", help="enqueue it and leave")

    def handle(self, *args: Any, **options: Any) -> None:
        job = enqueue(
            options["source"],
            owner=find_owner(options["owner"]),
            name=options["name"],
            visibility=Visibility.PUBLIC if options["public"] else Visibility.PRIVATE,
            quiet=not options["no_wait"],
        )
        if options["no_wait"]:
            self.stdout.write(f"{job.pk} is {job.status}: {job.owner.handle}/{job.slug}")
            return
        try:
            with hanging_up_is_ctrl_c():
                job = watch(job, Console(file=sys.stderr))
        except KeyboardInterrupt:
            # A query that was interrupted may have spoiled its connection.
            connections.close_all()
            # Nobody waits in front of it any more.
            ImportJob.objects.filter(pk=job.pk).update(quiet=False)
            self.stderr.write("The import goes on without this command.")
            sys.exit(EXIT_INTERRUPTED)
        if job.status != Status.COMPLETED or job.repository is None:
            raise CommandError(job.error_message or f"The import is {job.status}.", returncode=1)
        self.stdout.write(f"{job.repository.get_absolute_url()} is there.")


@contextlib.contextmanager
def hanging_up_is_ctrl_c() -> Iterator[None]:
    """A closed terminal and a `kill` end the waiting as Ctrl-C does, unless they are ignored."""
    signals = (signal.SIGHUP, signal.SIGTERM)
    before = {one: signal.getsignal(one) for one in signals}
    heeded = {one: handler for one, handler in before.items() if handler is not signal.SIG_IGN}
    for one in heeded:
        signal.signal(one, signal.default_int_handler)
    try:
        yield
    finally:
        for one, handler in heeded.items():
            signal.signal(one, handler)


def find_owner(handle: str | None) -> Any:
    """The person with this handle, or the first administrator; raises CommandError."""
    people = get_user_model().objects.all()
    if handle is None:
        owner = people.filter(is_superuser=True, is_active=True).order_by("pk").first()
        if owner is None:
            raise CommandError("There is no administrator yet: name the owner with --owner.")
        return owner
    owner = people.alias(lower=Lower("handle")).filter(lower=handle.lower()).first()
    if owner is None:
        raise CommandError(f"There is nobody with the handle {handle}.")
    return owner


def enqueue(source: str, *, owner: Any, name: str, visibility: str, quiet: bool) -> ImportJob:
    """Make the job; raises CommandError with what is wrong with source or name."""
    local = "://" not in source
    try:
        where = str(check_local(source)) if local else check_source(source)
        slug = name or suggested_slug(where)
        validate_slug(slug)
    except ValidationError as error:
        raise CommandError(" ".join(error.messages)) from None
    if Repository.objects.named(owner.handle, slug).exists():
        raise CommandError(f"{owner.handle}/{slug}: {name_taken()}")
    asked = {"source_url": where, "local": local, "visibility": visibility}
    keys = keys_of(owner_id=owner.pk, slug=slug, source_url=where, local=local)
    try:
        job = ImportJob.objects.enqueue(user=owner, slug=slug, quiet=quiet, **asked, **keys)
    except ValueError as error:
        # A path may be no UTF-8, or longer than what is kept of it.
        raise CommandError(str(error)) from None
    if job.duplicate and any(getattr(job, name) != value for name, value in asked.items()):
        raise CommandError(f"Another import to {owner.handle}/{slug} is waiting or running.")
    return job


def watch(job: ImportJob, console: Console) -> ImportJob:
    """Show the job as a bar until it is over; returns it as it ended."""
    news = threading.Event()
    waker = Waker([CHANGED], news.set)
    waker.start()
    columns = (
        # What a server says may look like markup.
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[details]}", markup=False),
        TimeElapsedColumn(),
    )
    try:
        with Progress(*columns, console=console) as bar:
            task = bar.add_task("", total=100, details="")
            while not (job := fresh(job)).is_over:
                show(bar, task, job)
                news.wait(SECONDS_BETWEEN_LOOKS)
                news.clear()
            show(bar, task, job)
    finally:
        waker.close()
    return job


def fresh(job: ImportJob) -> ImportJob:
    found = ImportJob.objects.select_related("user", "repository__owner").filter(pk=job.pk).first()
    if found is None:
        raise CommandError("Job not found: it was deleted.")
    with_places([found])
    return found


def show(bar: Progress, task: TaskID, job: ImportJob) -> None:
    bar.update(task, completed=job.progress_pct, description=words(job), details=details(job))


def words(job: ImportJob) -> str:
    """One phrase for where the job stands."""
    if job.status != Status.PENDING:
        return job.progress_step if job.status == Status.RUNNING else str(Status(job.status).label)
    if job.waits_until:
        return f"next attempt at {job.waits_until:%H:%M:%S} UTC ({job.error_message})"
    return f"waiting, number {job.place} in the queue" if job.place else "waiting for a worker"


def details(job: ImportJob) -> str:
    size = filesizeformat(job.received_bytes) if job.received_bytes else ""
    rate = f"{filesizeformat(job.bytes_per_second)}/s" if job.bytes_per_second else ""
    return "  ".join(part for part in (size, rate, job.attempt_note) if part)
