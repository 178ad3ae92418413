"""A Django project of its own with the engine's wheel in an environment of its own."""

import os
import re
import subprocess
import sys
import tarfile
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]

MANAGE = """
import os
import sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
execute_from_command_line(sys.argv)
"""

SETTINGS = """
SECRET_KEY = "bare"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "jobs.engine"]
TASKS = {"default": {"BACKEND": "jobs.engine.backend.JobsBackend"}}
"""


def sqlite(folder: Path) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(folder / "db.sqlite3"),
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """(source archive, wheel made from it), by the steps of `uv build`, in the tests' environment."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        sources.extractall(folder, filter="data")
    unpacked = folder / archive.name.removesuffix(".tar.gz")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=unpacked)
    (wheel,) = folder.glob("*.whl")
    return archive, wheel


def pins() -> str:
    """The versions of requirements.lock, as constraints for pip."""
    pinned = re.compile(r"^(\S+==\S+)( ;[^\\\n]+)? \\$", re.MULTILINE)
    found = pinned.findall((ROOT / "requirements.lock").read_text())
    return "\n".join(name + condition.rstrip() for name, condition in found)


def environment(folder: Path, requirement: str) -> Path:
    """The Python of a new environment that holds this requirement and what that asks for."""
    venv.create(folder / "environment", with_pip=False)
    python = folder / "environment" / "bin" / "python"
    (folder / "pins.txt").write_text(pins())
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    run(*pip, "--disable-pip-version-check", "-c", "pins.txt", requirement, cwd=folder)
    return python


@dataclass
class Project:
    """`manage.py`, `settings.py` and whatever else a test writes, in a folder."""

    folder: Path
    python: Path
    database: dict[str, Any]

    def write(self, settings: str = "", **modules: str) -> "Project":
        """Write the project, with these lines under its settings and with these modules."""
        databases = f"DATABASES = {{'default': {self.database!r}}}\n"
        (self.folder / "manage.py").write_text(MANAGE)
        (self.folder / "settings.py").write_text(SETTINGS + databases + settings)
        for name, text in modules.items():
            (self.folder / f"{name}.py").write_text(text)
        return self

    def start(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `manage.py` from elsewhere, warnings as errors, nothing of the tests' environment."""
        return subprocess.run(
            [self.python, "-W", "error", self.folder / "manage.py", *arguments],
            cwd=self.folder.root,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
            capture_output=True,
            text=True,
            timeout=120,
        )

    def manage(self, *arguments: str) -> str:
        """What `manage.py` prints, errors too; it must succeed."""
        done = self.start(*arguments)
        assert done.returncode == 0, done.stderr
        return (done.stdout + done.stderr).strip()

    def shell(self, code: str) -> str:
        return self.manage("shell", "-v0", "-c", code)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(source archive, wheel)."""
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="session")
def bare_python(
    built: tuple[Path, Path], pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The Python of an environment that holds the wheel and its libraries alone."""
    extra = {"sqlite": "", "postgresql": "[postgresql]"}[pytestconfig.getoption("database")]
    return environment(tmp_path_factory.mktemp("bare"), f"{built[1]}{extra}")
