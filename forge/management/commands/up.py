"""`manage.py up`: all of Forge on one machine, by one command."""

import os
import socket
import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from accounts.setup import setup_link
from forge.demo import enqueue_demo
from jobs.engine.lifecycle import Job
from jobs.engine.maintenance import rescue_dead
from jobs.engine.supervisor import Child, Supervisor

WORKER_GRACE_SECONDS = 6
STOP_SECONDS = 9
BACKLOG = 1024


class Command(BaseCommand):
    help = "Migrate the database, then run the web server and a worker until Ctrl-C or SIGTERM."
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--host", default="127.0.0.1", help="address to listen on (%(default)s)"
        )
        parser.add_argument("--port", type=int, default=default_port(), help="port (%(default)s)")
        parser.add_argument(
            "--demo",
            action="store_true",
            help="import the checkout that this runs from, as an example",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        url = public_url(options["host"], options["port"])
        listening = listen(options["host"], options["port"])
        call_command("migrate", interactive=False, verbosity=0)
        for kind in Job.kinds():
            rescue_dead(kind)
        if options["demo"]:
            self.stdout.write(enqueue_demo(settings.BASE_DIR))
        self._greet(url)
        os.set_inheritable(listening.fileno(), True)
        sys.exit(Supervisor(children(listening.fileno(), url), stop_seconds=STOP_SECONDS).run())

    def _greet(self, url: str) -> None:
        self.stdout.write(f"Forge is at {url} (Ctrl-C stops it)")
        link = setup_link(url)
        if link:
            self.stdout.write(f"Make the first administrator here, once: {link}")
        self.stdout.flush()


def default_port() -> int:
    """The port of FORGE_URL where that is this machine's own address, else 8000."""
    address = urlsplit(settings.FORGE_URL)
    own = address.hostname in ("127.0.0.1", "localhost", "::1")
    return address.port if own and address.port else 8000


def public_url(host: str, port: int) -> str:
    """What people type: FORGE_URL if it was given, else the address that is listened on."""
    if "FORGE_URL" in os.environ:
        return str(settings.FORGE_URL)
    shown = "127.0.0.1" if host in ("", "0.0.0.0", "::") else host  # noqa: S104 - compared, not bound
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


def listen(host: str, port: int) -> socket.socket:
    """A listening socket that outlives every web process; raises CommandError.

    Connections wait in its queue while a web process starts, so none is ever refused.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise CommandError(
            f"Cannot listen on {host} port {port}: {reason}. Choose another with --port."
        ) from None
    return listening


def children(fd: int, url: str) -> list[Child]:
    """The web server on the listening socket `fd`, and one worker for every kind."""
    manage = str(settings.BASE_DIR / "manage.py")
    env: Mapping[str, str] = {"FORGE_URL": url}
    return [
        Child(
            "web",
            [sys.executable, "-m", "forge.web", "--fd", str(fd)],
            {**env, "PYTHONPATH": path()},
            (fd,),
        ),
        Child(
            "worker",
            [sys.executable, manage, "runworker", "--grace", str(WORKER_GRACE_SECONDS)],
            env,
        ),
    ]


def path() -> str:
    """PYTHONPATH with which a child finds `forge` from any directory."""
    return os.pathsep.join(filter(None, [str(settings.BASE_DIR), os.environ.get("PYTHONPATH", "")]))
