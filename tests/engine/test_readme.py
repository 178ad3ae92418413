"""The example in the engine's README is a kind that works."""

import ast
import hashlib
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import isolate_apps

from jobs.engine import checks
from jobs.engine.conf import DEFAULT_SEATS, SEATS_OF_OTHERS, Config
from tests.workers import run_due

README = Path(__file__).parents[2] / "jobs" / "engine" / "README.md"
KIND, ENQUEUE = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def example(transactional_db: None) -> Iterator[dict[str, Any]]:
    """The names that the README's file defines, its class with a table of its own."""
    names: dict[str, Any] = {"__name__": "tests.kinds.checksum_job"}
    # Other tests go through all installed kinds, of which this must not become one.
    with isolate_apps("tests.kinds"):
        exec(compile(KIND, str(README), "exec"), names)
    with connection.schema_editor() as editor:
        editor.create_model(names["ChecksumJob"])
    yield names
    with connection.schema_editor() as editor:
        editor.delete_model(names["ChecksumJob"])


def enqueue(names: dict[str, Any], path: Path) -> Any:
    exec(compile(ENQUEUE, str(README), "exec"), names, scope := {"path": path})
    return scope["job"]


def test_the_example_does_its_work(example: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"forge" * 500_000)
    job = enqueue(example, path)
    again = enqueue(example, path)

    assert run_due(example["ChecksumJob"]) == 0

    job.refresh_from_db()
    assert (job.status, job.progress_pct) == ("completed", 100)
    assert job.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (again.pk, again.duplicate) == (job.pk, True)


def test_the_example_fails_in_plain_words_and_at_once(
    example: dict[str, Any], tmp_path: Path
) -> None:
    job = enqueue(example, tmp_path / "gone")

    run_due(example["ChecksumJob"])

    job.refresh_from_db()
    assert (job.status, job.attempts) == ("failed", 1)
    assert job.error_message == "There is no such file."


def test_the_example_passes_the_checks(
    example: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = example["ChecksumJob"]
    monkeypatch.setattr(checks.Job, "kinds", lambda: [kind])

    assert checks.check_kinds() == []
    assert kind.check() == []


def test_the_settings_are_told_with_their_defaults() -> None:
    section = README.read_text().partition("\n## Settings\n")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `([A-Z_]+)` \| `?([^|`]+)`? \|", section, re.MULTILINE)
    assert {name.lower(): ast.literal_eval(value) for name, value in told} == asdict(Config())
    others, tasks = re.findall(r"have (\d+), tasks (\d+)", section)[0]
    assert (int(others), int(tasks)) == (SEATS_OF_OTHERS, DEFAULT_SEATS["task"])
    assert not re.search(r"JOBS_[A-Z]", README.read_text())
