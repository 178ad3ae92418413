"""A real smart-HTTP server on 127.0.0.1: `git http-backend`, and the ways in which servers fail.

`git_server.url("name", "mode")` is `http://127.0.0.1:<port>/<mode>/name`; the repository is
`git_server.repositories / "name.git"`, which `tests.gitrepos` builds.
"""

import gzip
import ipaddress
import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO

import pytest

CHUNK = 16 * 1024
ADVERTISEMENT = "application/x-git-upload-pack-advertisement"
# A hook on the server may print what it likes; git sends it on as the server's own words.
FORGING_HOOK = r"""#!/bin/sh
printf 'Receiving objects:  99%% (99/100)\rResolving deltas: 100%% (9/9), done.\n' >&2
printf '\033[2J\033]0;owned\007<script>alert(1)</script>\n' >&2
exec "$@"
"""


class GitServer:
    """The server and what tests may do with it while it serves.

    Modes, for every repository:
      normal        as a good server does
      redirect      301 to the address with `.git` where it is missing, good after that
      away          302 to the same path below `elsewhere`
      off-path      302 to a page that is no repository's
      loop          302 to itself
      page          an HTML page at 200, whatever is asked for
      dumb          the old protocol without smart answers
      status-N      that HTTP status
      silent        takes the connection and says nothing
      silent-pack   a good advertisement, then silence
      cut           the connection ends after `halfway` bytes of the pack
      slow          about `bytes_per_second` of the pack
      held          `halfway` bytes of the pack; then sets `reached` and waits for `go_on`
      forged        words of the server that look like git's own progress
      error         an error with NUL and escape sequences in it instead of a pack
      gone          the advertisement is good and the pack is a 404

    With a `certificate` (a file with its key) it speaks TLS, as `localhost`.
    """

    def __init__(
        self, repositories: Path, address: str = "127.0.0.1", *, certificate: Path | None = None
    ) -> None:
        self.repositories = repositories
        self.elsewhere = ""
        self.bytes_per_second = 256 * 1024
        # More than one packet of the protocol, of which git hands on only whole ones.
        self.halfway = 160 * 1024
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.requests: list[str] = []
        self._closing = threading.Event()
        self._http = _HTTPServer((address, 0), _Handler)
        self._http.git = self
        self.port: int = self._http.server_address[1]
        self.root = f"http://{address}:{self.port}"
        if certificate:
            self.root = f"https://localhost:{self.port}"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()
        hook = repositories / "forging-hook"
        hook.write_text(FORGING_HOOK)
        hook.chmod(0o755)

    def url(self, name: str, mode: str = "normal") -> str:
        return f"{self.root}/{mode}/{name}"

    def wait_until_closed(self) -> None:
        self._closing.wait()

    def wait_to_go_on(self) -> None:
        """Return when a test says `go_on`, or when the server closes."""
        while not (self.go_on.wait(0.05) or self._closing.is_set()):
            pass

    def close(self) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def git_server(tmp_path_factory: pytest.TempPathFactory, settings) -> Iterator[GitServer]:
    """A server on 127.0.0.1, which imports are allowed to reach for this test."""
    settings.FORGE_IMPORT_ALLOWED_NETWORKS = [ipaddress.ip_network("127.0.0.1/32")]
    server = GitServer(tmp_path_factory.mktemp("served"))
    yield server
    server.close()


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    git: GitServer

    def handle_error(self, request, client_address) -> None:
        """A client that goes away is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _HTTPServer

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self._body())

    def _answer(self, body: bytes) -> None:
        self.server.git.requests.append(self.path)
        _empty, mode, rest = self.path.split("/", 2)
        name, slash, _tail = rest.partition("/info/refs")
        if not slash:
            name, _slash, _tail = rest.partition("/git-upload-pack")
        word, _dash, number = mode.partition("-")
        special = getattr(self, f"_serve_{mode.replace('-', '_')}", None)
        if word == "status":
            self._reply(int(number), b"plain words of the server\n", kind="text/plain")
        elif special:
            special(name, body)
        else:
            self._backend(name, body)

    # What a mode does.

    def _serve_redirect(self, name: str, body: bytes) -> None:
        if name.endswith(".git"):
            self._backend(name, body)
        else:
            self._redirect(self.path.replace(f"/{name}/", f"/{name}.git/", 1), status=301)

    def _serve_away(self, name: str, body: bytes) -> None:
        self._redirect(self.server.git.elsewhere + self.path.removeprefix("/away"))

    def _serve_off_path(self, name: str, body: bytes) -> None:
        self._redirect("/page/sign_in")

    def _serve_loop(self, name: str, body: bytes) -> None:
        self._redirect(self.path)

    def _serve_page(self, name: str, body: bytes) -> None:
        self._reply(200, b"<!doctype html><title>A page</title>" * 100, kind="text/html")

    def _serve_dumb(self, name: str, body: bytes) -> None:
        self._reply(200, b"%s\trefs/heads/main\n" % (b"1" * 40), kind="text/plain")

    def _serve_silent(self, name: str, body: bytes) -> None:
        self.server.git.reached.set()
        self.server.git.wait_until_closed()
        self.close_connection = True

    def _serve_silent_pack(self, name: str, body: bytes) -> None:
        if b"command=fetch" in body:
            self._serve_silent(name, body)
        else:
            self._backend(name, body)

    def _serve_gone(self, name: str, body: bytes) -> None:
        if b"command=fetch" in body:
            self._reply(404, b"gone\n", kind="text/plain")
        else:
            self._backend(name, body)

    def _serve_cut(self, name: str, body: bytes) -> None:
        self._backend(name, body, cut=b"command=fetch" in body)

    def _serve_slow(self, name: str, body: bytes) -> None:
        self._backend(name, body, slow=b"command=fetch" in body)

    def _serve_held(self, name: str, body: bytes) -> None:
        self._backend(name, body, held=b"command=fetch" in body)

    def _serve_forged(self, name: str, body: bytes) -> None:
        hook = self.server.git.repositories / "forging-hook"
        self._backend(name, body, config={"uploadpack.packObjectsHook": str(hook)})

    def _serve_error(self, name: str, body: bytes) -> None:
        if b"command=fetch" not in body:
            self._backend(name, body)
            return
        words = b"\x03no \x00 way \x1b[31mred\x1b[0m \xe2\x80\xae <script>\n"
        lines = (b"packfile\n", words)
        reply = b"".join(b"%04x%s" % (len(line) + 4, line) for line in lines)
        self._reply(200, reply, kind="application/x-git-upload-pack-result")

    # How it does it.

    def _redirect(self, target: str, *, status: int = 302) -> None:
        self.send_response(status)
        self.send_header("Location", target)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _reply(self, status: int, body: bytes, *, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _backend(
        self,
        name: str,
        body: bytes,
        *,
        cut: bool = False,
        slow: bool = False,
        held: bool = False,
        config: dict[str, str] | None = None,
    ) -> None:
        process = subprocess.Popen(
            ["git", "http-backend"],
            env=self._environment(name, body, config or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        with process:
            assert process.stdin
            assert process.stdout
            process.stdin.write(body)
            process.stdin.close()
            try:
                self._send_headers(process.stdout)
                self._send_body(process.stdout, cut=cut, slow=slow, held=held)
            finally:
                process.kill()

    def _environment(self, name: str, body: bytes, config: dict[str, str]) -> dict[str, str]:
        path, _mark, query = self.path.partition("?")
        name = name.removesuffix(".git") + ".git"
        tail = "git-upload-pack" if path.endswith("git-upload-pack") else "info/refs"
        configured = {"safe.directory": "*", **config}
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": "/nonexistent",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_COUNT": str(len(configured)),
            "GIT_PROJECT_ROOT": str(self.server.git.repositories),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "PATH_INFO": f"/{name}/{tail}",
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "REMOTE_ADDR": "127.0.0.1",
        }
        for number, (key, value) in enumerate(configured.items()):
            environment[f"GIT_CONFIG_KEY_{number}"] = key
            environment[f"GIT_CONFIG_VALUE_{number}"] = value
        return environment

    def _send_headers(self, source: IO[bytes]) -> None:
        headers = []
        while (line := source.readline().strip()) != b"":
            headers.append(tuple(line.decode().split(": ", 1)))
        status = next((int(value.split()[0]) for name, value in headers if name == "Status"), 200)
        self.send_response(HTTPStatus(status))
        for name, value in headers:
            if name != "Status":
                self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _send_body(self, source: IO[bytes], *, cut: bool, slow: bool, held: bool) -> None:
        server, sent = self.server.git, 0
        while data := source.read(CHUNK):
            if cut and sent + len(data) >= server.halfway:
                self._send_chunk(data[: len(data) // 2])
                self._hang_up()
                return
            if held and sent < server.halfway <= sent + len(data):
                server.reached.set()
                server.wait_to_go_on()
            self._send_chunk(data)
            sent += len(data)
            if slow:
                time.sleep(len(data) / server.bytes_per_second)
        if cut:
            self._hang_up()
            return
        self.wfile.write(b"0\r\n\r\n")

    def _send_chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _body(self) -> bytes:
        """The request's body, decoded from chunks and gzip, which git uses for long ones."""
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b"".join(self._chunks())
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
