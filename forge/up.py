"""All of Forge on one machine, by one command: a web server and a worker, watched.

Nothing here loads Django: the children do, and the first page must not wait for it twice.
"""

import argparse
import logging
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from jobs.engine.supervisor import Child, Supervisor

ROOT = Path(__file__).resolve().parent.parent
WORKER_GRACE_SECONDS = 6
STOP_SECONDS = 9
BACKLOG = 1024
HELP = "Migrate the database, then run the web server and a worker until Ctrl-C or SIGTERM."


class CannotListen(Exception):
    """The address cannot be listened on; the message is a sentence that says why."""


def main(arguments: Sequence[str]) -> int:
    """Run until told to stop; returns the exit code."""
    parser = argparse.ArgumentParser(prog="manage.py up", description=HELP)
    add_arguments(parser)
    options = parser.parse_args(arguments)
    logging.basicConfig(format="{asctime} {levelname} {name}: {message}", style="{")
    try:
        listening = listen(options.host, options.port)
    except CannotListen as reason:
        print(reason, file=sys.stderr)  # noqa: T201 - the command's answer
        return 1
    # Asked of the socket, because port 0 means any that is free.
    url = public_url(options.host, listening.getsockname()[1])
    with listening:
        children = [web(listening.fileno(), url, demo=options.demo), worker(url)]
        return Supervisor(children, stop_seconds=STOP_SECONDS).run()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=default_port(), help="port (%(default)s)")
    parser.add_argument(
        "--demo", action="store_true", help="import the checkout that this runs from, as an example"
    )


def default_port() -> int:
    """The port of FORGE_URL where that is this machine's own address, else 8000."""
    try:
        address = urlsplit(os.environ.get("FORGE_URL", ""))
        own = address.hostname in ("127.0.0.1", "localhost", "::1")
        return (address.port if own else None) or 8000
    except ValueError:
        # The settings will say what is wrong with it.
        return 8000


def public_url(host: str, port: int) -> str:
    """What people type: FORGE_URL if it was given, else the address that is listened on."""
    given = os.environ.get("FORGE_URL")
    if given:
        return given
    shown = "127.0.0.1" if host in ("", "0.0.0.0", "::") else host  # noqa: S104 - compared, not bound
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


def listen(host: str, port: int) -> socket.socket:
    """A listening socket that outlives every web process; raises CannotListen.

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
        raise CannotListen(
            f"Cannot listen on {host} port {port}: {reason.rstrip('.')}. Choose another with --port."
        ) from None
    return listening


def web(fd: int, url: str, *, demo: bool) -> Child:
    """The web server on the listening socket `fd`; at first it prepares the database."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return Child(
        "web",
        [sys.executable, "-m", "forge.web", "--fd", str(fd)],
        env={"FORGE_URL": url, "PYTHONPATH": path},
        pass_fds=[fd],
        opening=["--prepare", *(["--demo"] if demo else [])],
    )


def worker(url: str) -> Child:
    """One worker for every kind."""
    manage = str(ROOT / "manage.py")
    return Child(
        "worker",
        [sys.executable, manage, "runworker", "--grace", str(WORKER_GRACE_SECONDS)],
        env={"FORGE_URL": url},
    )
