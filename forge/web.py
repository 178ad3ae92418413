"""`python -m forge.web`: the web server, uvicorn with the options that Forge needs."""

import argparse
import os
import socket

import uvicorn

STOP_SECONDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m forge.web", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument(
        "--fd", type=int, help="an already listening socket, in place of host and port"
    )
    options = parser.parse_args()
    config = uvicorn.Config(
        "forge.asgi:application",
        host=options.host,
        port=options.port,
        lifespan="on",
        log_level="warning",
        timeout_graceful_shutdown=STOP_SECONDS,
        proxy_headers=bool(os.environ.get("FORGE_TRUSTED_PROXIES")),
        forwarded_allow_ips=os.environ.get("FORGE_TRUSTED_PROXIES"),
        server_header=False,
    )
    sockets = None if options.fd is None else [socket.socket(fileno=options.fd)]
    uvicorn.Server(config).run(sockets=sockets)


if __name__ == "__main__":
    main()
