"""What README.md says of settings and SQL is so."""

import re
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from accounts.models import User
from jobs.engine.conf import Config
from jobs.models import ImportJob
from tests.workers import run_due

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
READ = re.compile(
    r"""(?:\benv\.\w+|\bnetworks|\bdatabase|\bswitch|\bchoice|\bdomains|\bvariable|\benviron(?:\.get)?)[\[(]\s*["']([A-Z_]+)["']""",
    re.DOTALL,
)


def settings_told() -> dict[str, str]:
    """{variable: default} of the table in README.md."""
    section = README.partition("\n## Settings\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `([A-Z_]+)` \| (.*?) ?\|", section, re.MULTILINE))


def settings_read() -> set[str]:
    """Every variable that the project reads, but those that name certificates, paths and Django's."""
    sources = [path.read_text() for path in (ROOT / "forge").rglob("*.py")]
    named = {name for source in sources for name in READ.findall(source)}
    engine = {f"JOBS_{key.upper()}" for key in Config.__slots__ if key != "database"}
    return (named | engine) - {"PYTHONPATH", "DJANGO_SETTINGS_MODULE"}


def test_the_settings_table_names_what_is_read_and_nothing_else() -> None:
    assert set(settings_told()) == settings_read()


def test_the_settings_table_tells_the_defaults() -> None:
    defaults = Config()
    for variable, told in settings_told().items():
        value = getattr(defaults, variable.removeprefix("JOBS_").lower(), None)
        if variable.startswith("JOBS_") and variable not in ("JOBS_SEATS", "JOBS_DATABASE_URL"):
            assert told == f"`{value}`"
    seats = ",".join(f"{kind}={defaults.seats_of(kind)}" for kind in ("import", "email", "task"))
    assert settings_told()["JOBS_SEATS"] == f"`{seats}`"


@pytest.mark.django_db(transaction=True)
def test_one_line_of_sql_lists_the_failed_imports_with_their_errors(settings: Any) -> None:
    settings.FORGE_IMPORT_ALLOWED_NETWORKS = []
    ada = User.objects.create_user(email="ada@example.org", handle="ada")
    job = ImportJob.objects.enqueue(user=ada, source_url="http://127.0.0.1/engine", slug="engine")
    ImportJob.objects.enqueue(user=ada, source_url="http://127.0.0.1/b", slug="b").cancel()
    run_due(ImportJob)
    (line,) = re.findall(r"^```sql\n(.*?)\n```$", README, re.MULTILINE | re.DOTALL)

    with connection.cursor() as cursor:
        cursor.execute(line)
        rows = cursor.fetchall()

    pk, source_url, attempts, error = rows[0]
    assert len(rows) == 1
    assert str(pk).replace("-", "") == job.pk.hex
    assert (source_url, attempts) == ("http://127.0.0.1/engine", 1)
    assert error.startswith("Forge does not import from this address.")
