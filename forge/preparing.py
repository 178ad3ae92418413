"""What is done once, before the first page is served: migrate, rescue, greet."""

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS, DatabaseError

from accounts.setup import setup_link
from forge.demo import enqueue_demo
from jobs.engine.execution import give_connections_back
from jobs.engine.lifecycle import Job
from jobs.engine.maintenance import rescue_dead
from jobs.engine.wakeup import own_connection


def prepare(*, demo: bool) -> None:
    """Bring the database up to date and print where Forge is; raises CommandError."""
    demand_database()
    for alias in settings.DATABASES:
        call_command("migrate", database=alias, interactive=False, verbosity=0, skip_checks=False)
    for kind in Job.kinds():
        rescue_dead(kind)
    if demo:
        say(enqueue_demo(settings.BASE_DIR))
    say(f"Forge is at {settings.FORGE_URL} (Ctrl-C stops it)")
    link = setup_link(settings.FORGE_URL)
    if link:
        say(f"Make the first administrator here, once: {link}")
    give_connections_back()


def demand_database() -> None:
    """Say in one sentence why the database cannot be used; raises CommandError."""
    connection = own_connection(DEFAULT_DB_ALIAS)
    try:
        connection.ensure_connection()
    except DatabaseError as error:
        reason = str(error).strip().partition("\n")[0]
        raise CommandError(f"The database of DATABASE_URL cannot be used: {reason}") from None
    finally:
        connection.close()


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - for the person who started it
