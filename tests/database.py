"""One suite, two databases: `--database sqlite` (default) or `--database postgresql`."""

import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests import postgres

DATABASE_FIXTURES = {"db", "transactional_db", "live_server", "on_both_databases"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--database",
        choices=["sqlite", "postgresql"],
        default="sqlite",
        help="the database to run on; with postgresql, only tests that use a database run",
    )


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, Any, Any]:
    """Decide on the database before anything reads Django's settings."""
    data_dir = Path(tempfile.mkdtemp(prefix="forge-tests-"))
    early_config.add_cleanup(lambda: shutil.rmtree(data_dir, ignore_errors=True))
    os.environ["FORGE_DATA_DIR"] = str(data_dir)
    keep_bytecode(early_config)
    # Nothing that the machine is set up for is touched, and no test mails anybody.
    for name in ("DATABASE_URL", "POSTMARK_SERVER_TOKEN", "SMTP_URL", "ADMINS"):
        os.environ.pop(name, None)
    if early_config.known_args_namespace.database == "postgresql":
        try:
            url, close = postgres.database_url()
        except postgres.NoPostgres as error:
            raise pytest.UsageError(str(error)) from error
        early_config.add_cleanup(close)
        os.environ["DATABASE_URL"] = url
    return (yield)


def keep_bytecode(config: pytest.Config) -> None:
    """Where Python is told to leave none beside the sources, put it elsewhere.

    Else each of the hundreds of processes that the tests start would compile all it imports.
    """
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        folder = tempfile.mkdtemp(prefix="forge-bytecode-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.environ["PYTHONPYCACHEPREFIX"] = folder


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A rule that no database has a part in needs one run, not two."""
    on_sqlite = config.getoption("database") == "sqlite"
    keep, leave = [], []
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if on_sqlite:
            here = item.get_closest_marker("postgresql") is None
        else:
            here = bool(item.get_closest_marker("django_db") or DATABASE_FIXTURES & fixtures)
        (keep if here else leave).append(item)
    config.hook.pytest_deselected(items=leave)
    items[:] = keep


def pytest_report_header(config: pytest.Config) -> str:
    return f"database: {config.getoption('database')}"
