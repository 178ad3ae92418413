"""A real `manage.py up` for tests: its output, its processes, its rows, and a person at its pages."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest
import requests

from tests.waiting import wait_for

ROOT = Path(__file__).parents[1]
OURS = re.compile(
    r"^(FORGE_|JOBS_|DJANGO_|DATABASE_URL|SECRET_KEY|DEBUG|ALLOWED_HOSTS|PYTEST"
    r"|POSTMARK_|SMTP_URL|ADMINS)"
)
PASSWORD = "a horse by the sea"


def plain_environment(**values: str) -> dict[str, str]:
    """The environment of this process without what Forge or the test run put there."""
    inherited = {name: value for name, value in os.environ.items() if not OURS.match(name)}
    return {**inherited, "PYTHONUNBUFFERED": "1", **values}


def run(*argv: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments until it ends."""
    return subprocess.run(
        [sys.executable, *argv],
        env=plain_environment(**environment),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
    )


def new_database(server: str, *, like: str | None = None) -> str:
    """The URL of a new database on the PostgreSQL server of the test run; a copy of `like`."""
    name = f"forge_up_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        template = f" TEMPLATE {urlsplit(like).path[1:]}" if like else ""
        connection.execute(f"CREATE DATABASE {name}{template}")
    return urlsplit(server)._replace(path=f"/{name}").geturl()


def drop_database(server: str, url: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {urlsplit(url).path[1:]} WITH (FORCE)")


@contextmanager
def own_database(config: pytest.Config, *, like: str | None = None) -> Iterator[dict[str, str]]:
    """What the environment says of a database that no test shares: nothing, when it is SQLite.

    It is empty, or holds what the one at the URL `like` does, with which nobody is connected.
    """
    if config.getoption("database") == "sqlite":
        yield {}
        return
    server = os.environ["DATABASE_URL"]
    url = new_database(server, like=like)
    try:
        yield {"DATABASE_URL": url}
    finally:
        drop_database(server, url)


@pytest.fixture
def on_both_databases() -> None:
    """For tests that are run on each database although this process opens none."""


@pytest.fixture
def start_forge(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[..., "ForgeProcess"]]:
    """Start `up` in a data directory of this test's own, again and again if need be."""
    with own_database(request.config) as database, started(tmp_path / "forge", database) as start:
        yield start


@contextmanager
def started(data_dir: Path, database: dict[str, str]) -> Iterator[Callable[..., "ForgeProcess"]]:
    """How to start `up`; what was started ends with the context."""
    running: list[ForgeProcess] = []

    def start(*arguments: str, **options: Any) -> ForgeProcess:
        given = {"FORGE_IMPORT_ALLOWED_NETWORKS": "127.0.0.1/32", **database, **options}
        running.append(ForgeProcess(data_dir, *arguments, **given))
        return running[-1]

    try:
        yield start
    finally:
        for forge in running:
            forge.close()


class ForgeProcess:
    """`manage.py up` on a free port, in a process group of its own as in a terminal."""

    def __init__(
        self, data_dir: Path, *arguments: str, cwd: Path = ROOT, **environment: str
    ) -> None:
        self.data_dir = data_dir
        self.environment = environment
        self.started_at = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, ROOT / "manage.py", "up", "--port", "0", *arguments],
            env=plain_environment(FORGE_DATA_DIR=str(data_dir), **environment),
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.output = ""
        self._news = threading.Condition()
        self._over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._seen: set[psutil.Process] = set()

    # What it says.

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            with self._news:
                self.output += line
                self._news.notify_all()
        with self._news:
            self._over = True
            self._news.notify_all()

    def says(self, pattern: str, *, seconds: float = 30) -> re.Match[str]:
        """Wait for the output to match."""
        with self._news:
            self._news.wait_for(lambda: self._over or re.search(pattern, self.output), seconds)
            found = re.search(pattern, self.output)
        assert found, f"no {pattern!r} in:\n{self.output}"
        return found

    @property
    def address(self) -> str:
        return self.says(r"Forge is at (http\S+)")[1]

    @property
    def welcome_link(self) -> str:
        return self.says(r"once: (http\S+)")[1]

    def get(self, path: str = "/", **options: Any) -> requests.Response:
        """Ask without a session. The first answer may take as long as a start."""
        return requests.get(self.address + path, **{"timeout": 20, **options})

    def ready(self) -> "ForgeProcess":
        """Wait until both the web process and the worker serve."""
        assert self.get("/healthz").text == "ok\n"
        self.says("is ready")
        return self

    # Its processes.

    def processes(self) -> set[psutil.Process]:
        """Those that run now below `up`, git included; all of them are remembered."""
        try:
            now = set(psutil.Process(self.process.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            now = set()
        self._seen |= now
        return now

    def child(self, name: str) -> psutil.Process:
        """The process of the web server (`web`) or of the worker (`worker`)."""
        word = {"web": "forge.web", "worker": "runworker"}[name]
        return wait_for(lambda: next((p for p in self.processes() if word in _argv(p)), None))

    def waited_for_the_machine(self) -> float:
        """Seconds in which `up` or the web server, one after the other, was ready but not run."""
        return _queued(self.process.pid) + _queued(self.child("web").pid)

    def left(self) -> list[psutil.Process]:
        """What still runs of all processes that were ever seen."""
        return [process for process in self._seen if _runs(process)]

    def stop(self, how: Callable[["ForgeProcess"], None] | None = None) -> tuple[int, float]:
        """Send SIGTERM (or do `how`), wait for the end: (exit code, seconds)."""
        self.processes()
        began = time.monotonic()
        (how or ForgeProcess.terminate)(self)
        code = self.process.wait(20)
        seconds = time.monotonic() - began
        self._reader.join(10)
        return code, seconds

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def press_ctrl_c(self) -> None:
        """As a terminal does: the whole process group in the foreground gets it."""
        os.killpg(self.process.pid, signal.SIGINT)

    def close(self) -> None:
        self.processes()
        for process in self.left():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(10)
        assert self.process.stdout
        self.process.stdout.close()

    # Its rows.

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        url = self.environment.get("DATABASE_URL")
        if url:
            with psycopg.connect(url) as connection:
                return connection.execute(sql).fetchall()
        path = self.data_dir / "forge.sqlite3"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=20)) as connection:
            return connection.execute(sql).fetchall()

    def job(self, slug: str) -> dict[str, Any]:
        """Status, attempts and log of the newest import to that name."""
        columns = "status, attempts, attempt_log, error_message"
        sql = f"SELECT {columns} FROM jobs_importjob WHERE slug = '{slug}' ORDER BY id DESC"
        found = dict(zip(columns.split(", "), self.rows(sql)[0], strict=True))
        log = found["attempt_log"]
        return {**found, "attempt_log": json.loads(log) if isinstance(log, str) else log}


class Person:
    """Somebody with a browser that does what it is told: sessions, forms and their tokens."""

    def __init__(self, forge: ForgeProcess) -> None:
        self.address = forge.address
        self.session = requests.Session()

    def open(self, path: str, **options: Any) -> requests.Response:
        return self.session.get(self.address + path, timeout=20, **options)

    def send(self, path: str, **fields: str) -> requests.Response:
        """Send a form that has its token from the page that is there now."""
        token = self.session.cookies.get("csrftoken") or ""
        return self.session.post(
            self.address + path, data={**fields, "csrfmiddlewaretoken": token}, timeout=20
        )

    def begin(self, link: str) -> "Person":
        """Become the first administrator."""
        answer = self.session.post(
            link,
            data={
                "email": "ada@example.org",
                "handle": "ada",
                "password1": PASSWORD,
                "password2": PASSWORD,
            },
            timeout=20,
        )
        assert answer.ok and "Repositories" in answer.text, answer.text
        return self

    def sign_in(self) -> "Person":
        assert self.open("/sign-in").ok
        answer = self.send("/sign-in", email="ada@example.org", password=PASSWORD)
        assert answer.ok and "Repositories" in answer.text, answer.text
        return self

    def start_import(self, url: str, **fields: str) -> str:
        """Send the import form; returns the path of the job's page."""
        assert self.open("/import").ok
        answer = self.send("/import", source_url=url, **fields)
        assert answer.ok, answer.text
        path = urlsplit(answer.url).path
        assert path.endswith("/progress"), answer.text
        return path

    def close(self) -> None:
        self.session.close()


@pytest.fixture
def administrator() -> Iterator[Callable[[ForgeProcess], Person]]:
    """Become the first administrator of a Forge that has just started for the first time."""
    people: list[Person] = []

    def begin(forge: ForgeProcess) -> Person:
        people.append(Person(forge).begin(forge.welcome_link))
        return people[-1]

    yield begin
    for person in people:
        person.close()


def _queued(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def _argv(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
