"""The project in examples/, run on the engine's wheel, with a database of this test's own."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.bare import ROOT
from tests.forge_process import own_database
from tests.postgres import free_port

FOLDER = ROOT / "examples"
FILE = "examples.sqlite3"


class Examples:
    """`examples/manage.py`, and SQL on its database beside it."""

    def __init__(self, python: Path, data: Path, url: str | None) -> None:
        self.data = data
        self.python = python
        self.smtp_port = free_port()
        self.url = url
        self._stack = ExitStack()
        self._session: Any = None
        self._asking = Lock()
        self.environment = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "EXAMPLES_DATA": str(data),
            "SMTP_PORT": str(self.smtp_port),
        }
        if url is not None:
            where = conninfo_to_dict(url)
            names = {"dbname": "PGDATABASE", "host": "PGHOST", "port": "PGPORT", "user": "PGUSER"}
            self.environment |= {
                variable: str(where[key]) for key, variable in names.items() if key in where
            }

    def manage(self, *arguments: str | Path) -> str:
        """What the command prints, warnings being errors; it must succeed."""
        done = subprocess.run(
            [self.python, "-W", "error", "manage.py", *arguments],
            cwd=FOLDER,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return (done.stdout + done.stderr).strip()

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start a command that runs on; it is stopped at the end of the test."""
        return self._start([self.python, *arguments])

    def serve_asgi(self, port: str) -> None:
        """By the server of the tests' environment; the wheel asks for none."""
        uvicorn = [sys.executable, "-m", "uvicorn", "--log-level", "warning"]
        self._start([*uvicorn, "--port", port, "asgi:application"])

    def _start(self, command: list[str | Path]) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(command, cwd=FOLDER, env=self.environment, process_group=0)
        self._stack.callback(stop, process)
        return process

    def query(self, sql: str) -> list[Any]:
        """All rows, asked by any thread on a connection that is kept: some ask all the time."""
        with self._asking:
            if self._session is None:
                self._session = self._stack.enter_context(closing(self._connect()))
            return list(self._session.execute(sql).fetchall())

    def _connect(self) -> Any:
        if self.url is not None:
            return psycopg.connect(self.url, autocommit=True)
        path = self.data / FILE
        return sqlite3.connect(path, timeout=20, autocommit=True, check_same_thread=False)

    def value(self, sql: str) -> Any:
        return self.query(sql)[0][0]

    def running_process(self) -> int:
        """The process that runs the one job that is running."""
        worker = self.value("SELECT worker FROM jobs_engine_taskjob WHERE status = 'running'")
        return int(worker.split("/")[2])

    def close(self) -> None:
        self._stack.close()


def stop(process: "subprocess.Popen[bytes]") -> None:
    """SIGTERM, so that a supervisor takes its children along; SIGKILL if that takes long."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A folder that needs no disk, where there is one: the examples commit at each step."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def migrated(
    bare_python: Path, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Examples]:
    """What each test gets a copy of."""
    with own_database(pytestconfig) as found:
        folder = tmp_path_factory.mktemp("migrated")
        project = Examples(bare_python, folder, found.get("DATABASE_URL"))
        project.manage("migrate", "-v0")
        yield project


@pytest.fixture
def examples(
    migrated: Examples, data: Path, pytestconfig: pytest.Config, on_both_databases: None
) -> Iterator[Examples]:
    """The examples on an empty database, migrated."""
    with own_database(pytestconfig, like=migrated.url) as found:
        if migrated.url is None:
            shutil.copy(migrated.data / FILE, data)
        project = Examples(migrated.python, data, found.get("DATABASE_URL"))
        with closing(project):
            yield project
