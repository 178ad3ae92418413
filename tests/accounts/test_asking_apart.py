"""Asking for a sign-in mail tells nothing where the jobs have a database of their own either."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from accounts.models import User
from tests.workers import ROOT, test_database_url

KNOWN, UNKNOWN = "ada@example.org", "eve@example.org"
ASK = f"""
import json
from django.db import connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from jobs.models import EmailJob
told = []
for address in ("{KNOWN}", "{UNKNOWN}"):
    client = Client(SERVER_NAME="127.0.0.1", raise_request_exception=False)
    with CaptureQueriesContext(connections["jobs"]) as queries:
        status = client.post("/sign-in", {{"email": address}}).status_code
    words = [" ".join(query["sql"].split()[:3]) for query in queries]
    told.append([status, [each for each in words if "SAVEPOINT" not in each]])
print(json.dumps(told))
"""
MAILS = "from jobs.models import EmailJob; print([job.to for job in EmailJob.objects.all()])"


@pytest.fixture
def environment(transactional_db: None, tmp_path: Path) -> dict[str, str]:
    User.objects.create_user(email=KNOWN, handle="ada")
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "forge.settings",
        "DATABASE_URL": test_database_url(),
        "JOBS_DATABASE_URL": f"sqlite:///{tmp_path / 'jobs.sqlite3'}",
        "FORGE_DATA_DIR": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }


def manage(environment: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, ROOT / "manage.py", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_mail_and_no_mail_cost_the_same_in_the_database_of_the_jobs(
    environment: dict[str, str],
) -> None:
    manage(environment, "migrate", "--database", "jobs", "-v0")

    known, unknown = json.loads(manage(environment, "shell", "-v0", "-c", ASK))

    assert known == unknown
    assert known[0] == 302
    assert any(words.startswith("INSERT INTO") for words in known[1])
    assert manage(environment, "shell", "-v0", "-c", MAILS) == f"[['{KNOWN}']]"


def test_every_address_is_answered_alike_when_that_database_is_broken(
    environment: dict[str, str],
) -> None:
    # It has no tables.
    known, unknown = json.loads(manage(environment, "shell", "-v0", "-c", ASK))

    # What follows is read by the report of the error.
    assert known[0] == unknown[0] >= 500
    assert known[1][:3] == unknown[1][:3]
