"""Accounts of the machine: repositories that another one owns, and being another one."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from repositories.processes import Process
from tests.repositories.importing import Starts

STRANGER = 54321

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


class ForeignStarts(Starts):
    """Starts processes for whom every repository is another account's: git's own test switch."""

    def __call__(self, argv, *, env, **more) -> Process:
        return super().__call__(argv, env=env | {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}, **more)


def given_away(path: Path) -> Path:
    """The same path, owned by another account with all that is in it."""
    for folder, folders, files in os.walk(path):
        for name in (".", *folders, *files):
            os.lchown(os.path.join(folder, name), STRANGER, STRANGER)
    return path


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """A temporary directory that every account may enter, as pytest's own are not."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name).resolve()


@contextlib.contextmanager
def not_root() -> Iterator[None]:
    """Be an account that permissions stop: another one when this one is root."""
    if os.getuid():
        yield
        return
    os.setresuid(STRANGER, STRANGER, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
