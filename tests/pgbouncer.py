"""A real PgBouncer in transaction mode before the server of the test run."""

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

from tests.postgres import free_port, unprivileged_user
from tests.waiting import wait_for

CONFIGURATION = """
[databases]
* = {server}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
pool_mode = transaction
auth_type = any
default_pool_size = 8
logfile = {folder}/log
pidfile = {folder}/pid
"""


def program() -> str:
    """Where it is; Debian keeps it where only root's PATH looks."""
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    assert found, "This test needs PgBouncer (Debian: apt-get install pgbouncer)."
    return found


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def pgbouncer(transactional_db: None) -> Iterator[str]:
    """The URL of the test's database behind a pooler in transaction mode."""
    of = connection.settings_dict
    names = {"host": of["HOST"], "port": of["PORT"], "user": of["USER"], "password": of["PASSWORD"]}
    server = " ".join(f"{name}={value}" for name, value in names.items() if value)
    folder, port = Path(tempfile.mkdtemp(prefix="pgbouncer-")), free_port()
    (folder / "ini").write_text(CONFIGURATION.format(server=server, port=port, folder=folder))
    account = unprivileged_user()
    if account:
        for path in (folder, folder / "ini"):
            shutil.chown(path, account)
    running = subprocess.Popen([program(), "--quiet", folder / "ini"], user=account)
    try:
        wait_for(lambda: answers(port))
        address = f"{of['USER']}@127.0.0.1:{port}/{of['NAME']}"
        # As README.md advises.
        yield f"postgresql://{address}?DISABLE_SERVER_SIDE_CURSORS=true"
    finally:
        running.terminate()
        running.wait()
        shutil.rmtree(folder, ignore_errors=True)
