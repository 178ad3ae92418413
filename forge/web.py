"""`python -m forge.web`: the web server, uvicorn with the options that Forge needs."""

import argparse
import signal
import socket
import sys
from types import FrameType
from typing import Any

import uvicorn
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

from jobs.engine.supervisor import EXIT_GIVE_UP, tell_ready

STOP_SECONDS = 5


def main() -> None:
    options = parsed()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    application = load(options)
    proxies = [str(network) for network in settings.FORGE_TRUSTED_PROXIES]
    tell_ready()
    config = uvicorn.Config(
        application,
        host=options.host,
        port=options.port,
        lifespan="on",
        log_level="warning",
        timeout_graceful_shutdown=STOP_SECONDS,
        # Addresses of pages may hold one-time tokens: no list of them is kept.
        access_log=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
        server_header=False,
    )
    sockets = None if options.fd is None else [socket.socket(fileno=options.fd)]
    uvicorn.Server(config).run(sockets=sockets)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m forge.web", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument(
        "--fd", type=int, help="an already listening socket, in place of host and port"
    )
    parser.add_argument("--prepare", action="store_true", help="migrate the database first")
    parser.add_argument("--demo", action="store_true", help="and enqueue the demo's import")
    return parser.parse_args()


def load(options: argparse.Namespace) -> Any:
    """The application, with its database prepared if that was asked for; exits with a sentence."""
    try:
        from forge.asgi import application

        if options.prepare:
            from forge.preparing import prepare

            prepare(demo=options.demo)
    except (ImproperlyConfigured, CommandError) as wrong:
        print(wrong, file=sys.stderr)  # noqa: T201 - no log is set up yet
        sys.exit(EXIT_GIVE_UP)
    return application


def _leave(_number: int, _frame: FrameType | None) -> None:
    """A stop is no accident: uvicorn ends politely, then raises the signal that it caught here."""
    sys.exit(0)


if __name__ == "__main__":
    main()
