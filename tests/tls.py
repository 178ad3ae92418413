"""A local server with TLS that takes one whole request and then breaks the connection's records."""

import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def certificate(folder: Path) -> tuple[Path, Path]:
    """(certificate, key), signed by itself, for 127.0.0.1."""
    made, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(made)),
        ],
        check=True,
        capture_output=True,
    )
    return made, key


class BreakingServer:
    """Hands the body of each POST that came over TLS to `take`; no answer can be read."""

    def __init__(self, folder: Path, take: Callable[[bytes], None]) -> None:
        self.certificate, key = certificate(folder)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self.certificate, key)
        self._take = take
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._listening.getsockname()[1]}"

    def stop(self) -> None:
        # Closing alone would not wake who waits in accept().
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _serve(self) -> None:
        # A client that trusts no such certificate goes away in the middle of the handshake.
        with suppress(OSError):
            while True:
                raw, _address = self._listening.accept()
                raw.settimeout(10)
                with suppress(OSError):
                    self._answer(raw)
                raw.close()

    def _answer(self, raw: socket.socket) -> None:
        with raw.dup() as under_tls, self._context.wrap_socket(raw, server_side=True) as wrapped:
            self._take(_body(wrapped))
            os.write(under_tls.fileno(), b"no record of TLS")


def _body(wrapped: ssl.SSLSocket) -> bytes:
    with wrapped.makefile("rb") as reader:
        length = 0
        while (line := reader.readline().strip()) != b"":
            name, _colon, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        return reader.read(length)
