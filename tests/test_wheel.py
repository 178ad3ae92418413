"""The engine as a wheel: what it holds, and a bare project that runs on it."""

import email
import os
import re
import signal
import tarfile
import zipfile
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests import bare
from tests.bare import ROOT, Project
from tests.forge_process import on_both_databases, own_database

__all__ = ["on_both_databases"]

WORK = """
import os
import signal
from pathlib import Path

from django.tasks import task
from jobs.engine.tasks import job_options


@task
def add(first, second):
    return first + second


@task(takes_context=True)
@job_options(max_attempts=2)
def die_once(context, mark):
    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return f"alive in attempt {context.attempt}"
"""
ENQUEUE = "from work import add; print(add.enqueue(2, second=3).id)"
ENQUEUE_DEATH = "from work import die_once; print(die_once.enqueue({mark!r}).id)"
RESULT = """
from django.tasks import default_task_backend
result = default_task_backend.get_result("{id}")
print(result.status, result.attempts, result.return_value)
"""
WITH_ADMIN = """
INSTALLED_APPS += [
    "django.contrib.admin", "django.contrib.sessions", "django.contrib.messages"
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [{
    "BACKEND": "django.template.backends.django.DjangoTemplates",
    "APP_DIRS": True,
    "OPTIONS": {"context_processors": [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]},
}]
ROOT_URLCONF = "urls"
ALLOWED_HOSTS = ["testserver"]
STATIC_URL = "static/"
"""
URLS = """
from django.contrib import admin
from django.urls import path

urlpatterns = [path("admin/", admin.site.urls)]
"""
VISIT = """
from django.contrib.auth.models import User
from django.test import Client
from jobs.engine.models import Schedule, TaskJob
client = Client()
client.force_login(User.objects.create_superuser("ada"))
job, schedule = TaskJob.objects.get(), Schedule.objects.get()
for page in ("taskjob/", f"taskjob/{job.pk}/change/", f"schedule/{schedule.pk}/change/", "pause/"):
    print(client.get(f"/admin/jobs_engine/{page}").status_code)
"""


@pytest.fixture(scope="session")
def archive(built: tuple[Path, Path]) -> Path:
    return built[0]


@pytest.fixture(scope="session")
def wheel(built: tuple[Path, Path]) -> Path:
    return built[1]


@pytest.fixture
def database(pytestconfig: pytest.Config, tmp_path: Path) -> Iterator[dict[str, object]]:
    """The DATABASES entry of an empty database."""
    with own_database(pytestconfig) as found:
        if "DATABASE_URL" not in found:
            yield bare.sqlite(tmp_path)
            return
        where = conninfo_to_dict(found["DATABASE_URL"])
        yield {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": where["dbname"],
            **{key.upper(): where.get(key, "") for key in ("host", "port", "user", "password")},
        }


@pytest.fixture
def project(
    tmp_path: Path, bare_python: Path, database: dict[str, object], on_both_databases: None
) -> Project:
    return Project(tmp_path, bare_python, database)


def metadata(wheel: Path) -> tuple[Message, str]:
    """What the wheel says of itself, and its description."""
    with zipfile.ZipFile(wheel) as files:
        (name,) = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
        text = files.read(name).decode()
    return email.message_from_string(text), text.partition("\n\n")[2]


def engine_files() -> set[str]:
    found = [ROOT / "jobs" / "__init__.py", *(ROOT / "jobs" / "engine").rglob("*")]
    return {
        str(path.relative_to(ROOT))
        for path in found
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_the_engine_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())

    of_the_wheel = {name for name in names if name.startswith("forge_jobs-0.1.0.dist-info/")}
    assert names - of_the_wheel == engine_files()
    assert {name.rpartition("/")[2] for name in of_the_wheel} == {
        *("METADATA", "WHEEL", "RECORD", "LICENSE")
    }
    assert "jobs/engine/migrations/0001_initial.py" in names
    assert "jobs/engine/management/commands/runworker.py" in names


def test_the_source_archive_holds_what_makes_the_wheel(archive: Path) -> None:
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}

    assert names == engine_files() | {".gitignore", "LICENSE", "PKG-INFO", "pyproject.toml"}


def test_the_metadata_asks_for_what_the_engine_imports(wheel: Path) -> None:
    told, description = metadata(wheel)

    assert told["Name"] == "forge-jobs"
    assert told["License-Expression"] == "MIT"
    assert told["Requires-Python"] == ">=3.12"
    always = [needed for needed in told.get_all("Requires-Dist", []) if "extra ==" not in needed]
    assert always == ["asgiref>=3.13", "cronsim>=2.8", "django<6.2,>=6.1"]
    assert told.get_all("Provides-Extra") == ["live", "postgresql"]
    assert description == (ROOT / "jobs" / "engine" / "README.md").read_text()


def test_nothing_in_the_wheel_names_forges_own_packages(wheel: Path) -> None:
    named = re.compile(rb"\b(forge(?!-jobs)|repositories|accounts)\b")
    with zipfile.ZipFile(wheel) as files:
        texts = {name: files.read(name) for name in files.namelist() if name.startswith("jobs/")}

    assert {name for name, text in texts.items() if named.search(text)} == set()


def test_a_bare_project_runs_a_task(project: Project) -> None:
    project.write(work=WORK)

    assert project.manage("check") == "System check identified no issues (0 silenced)."
    project.manage("migrate")
    assert project.manage("makemigrations", "--check", "--dry-run") == "No changes detected"
    pk = project.shell(ENQUEUE)
    told = project.manage("runworker", "--burst").splitlines()

    assert told[0] == "Worker for task is ready."
    assert project.shell(RESULT.format(id=pk)) == "SUCCESSFUL 1 5"
    assert "1 completed" in project.manage("jobs")


def test_the_environment_holds_the_engine_alone(project: Project) -> None:
    code = "import importlib.metadata as m; print(*[d.name for d in m.distributions()])"
    installed = bare.run(project.python, "-c", code, cwd=project.folder)

    drivers = {"psycopg", "psycopg-binary", "psycopg-pool", "typing_extensions"}
    assert {"forge-jobs", "Django", "cronsim"} <= set(installed.split())
    assert set(installed.split()) - drivers == {
        *("forge-jobs", "Django", "cronsim", "asgiref", "sqlparse")
    }


def test_a_job_that_kills_its_worker_runs_again_in_a_bare_project(project: Project) -> None:
    project.write(work=WORK).manage("migrate")
    mark = project.folder / "mark"
    pk = project.shell(ENQUEUE_DEATH.format(mark=str(mark)))

    assert project.start("runworker", "--burst").returncode == -signal.SIGKILL
    told = project.manage("runworker", "--burst")

    assert project.shell(RESULT.format(id=pk)) == "SUCCESSFUL 2 alive in attempt 2"
    assert "was lost in attempt 1" in told
    assert "Traceback" not in told


def test_a_project_with_the_admin_sees_its_jobs(project: Project) -> None:
    project.write(WITH_ADMIN, work=WORK, urls=URLS)

    assert project.manage("check") == "System check identified no issues (0 silenced)."
    project.manage("migrate")
    project.shell(ENQUEUE)
    assert project.shell(VISIT).split() == ["200"] * 4


def test_keys_of_another_type_ask_for_no_migration_of_the_engine(project: Project) -> None:
    project.write('DEFAULT_AUTO_FIELD = "django.db.models.AutoField"\n').manage("migrate")

    assert project.manage("makemigrations", "--check", "--dry-run") == "No changes detected"


def test_a_project_without_time_zones_is_told_so_before_it_migrates(project: Project) -> None:
    done = project.write("USE_TZ = False\n").start("migrate")

    assert done.returncode == 1
    assert "Set USE_TZ = True." in done.stderr


def test_the_first_lines_of_the_readme_lead_to_a_result(bare_python: Path, tmp_path: Path) -> None:
    """All but `pip install`: the environment has the wheel instead of the one that is published."""
    text = (ROOT / "jobs" / "engine" / "README.md").read_text()
    (lines,) = re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    install, rest = lines.split("\n", 1)
    assert install == "pip install forge-jobs"

    # Nothing of the tests' own environment, such as their settings.
    path = f"PATH={bare_python.parent}:{os.environ['PATH']}"
    clean = ("env", "-i", path, "LANG=C.UTF-8")
    told = bare.run(*clean, "bash", "-ec", rest, cwd=tmp_path)
    (pk,) = re.findall(r"^[0-9a-f-]{36}$", told, re.MULTILINE)
    ask = ("python", "manage.py", "shell", "-v0", "-c", RESULT.format(id=pk))
    assert bare.run(*clean, *ask, cwd=tmp_path / "shop").strip() == "SUCCESSFUL 1 5"
