"""The arrows between modules, and the rules that keep the state machine in one place."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import call_command

ROOT = Path(__file__).parents[1]
PACKAGES = ("forge", "accounts", "repositories", "jobs")

# A module may import what stands behind the longest prefix of its name.
ARROWS: dict[str, set[str]] = {
    "forge": {"forge", "accounts", "repositories", "jobs"},
    "accounts": {"accounts"},
    "repositories": {"repositories"},
    "jobs.urls": {"jobs.views", "jobs.outbox_views"},
    "jobs.views": {"jobs.forms", "jobs.import_feed", "jobs.models", "jobs.engine"},
    "jobs.forms": {"jobs.models", "repositories"},
    "jobs.import_feed": {"jobs.models", "jobs.engine"},
    "jobs.outbox_views": {"jobs.outbox"},
    "jobs.admin": {"jobs.models", "jobs.engine"},
    # Mail: the backend that queues, and those that deliver, of which the kind knows none.
    "jobs.mail": {
        *("jobs.attachments", "jobs.deliverable", "jobs.mail_columns", "jobs.models"),
        "jobs.engine",
    },
    "jobs.mail_columns": {
        *("jobs.attachments", "jobs.composing", "jobs.mail_addresses"),
        "jobs.engine",
    },
    # That it can be delivered is tried out before it is stored.
    "jobs.deliverable": {"jobs.attachments", "jobs.models", "jobs.postmark_mail", "jobs.smtp"},
    "jobs.composing": {"jobs.attachments", "jobs.mail_addresses"},
    "jobs.mail_addresses": set(),
    "jobs.attachments": set(),
    "jobs.sweeping": {"jobs.attachments", "jobs.models"},
    "jobs.delivery": {"jobs.engine.retry"},
    "jobs.handover": {
        *("jobs.delivery", "jobs.mail_addresses", "jobs.models", "jobs.pacing", "jobs.engine"),
    },
    "jobs.pacing": {"jobs.models", "jobs.engine"},
    "jobs.notifications": {"jobs.engine.conf"},
    "jobs.provider": {"jobs.delivery", "jobs.engine"},
    "jobs.postmark": {"jobs.delivery", "jobs.engine", "jobs.postmark_mail"},
    "jobs.postmark_mail": set(),
    "jobs.smtp": {"jobs.delivery", "jobs.engine", "jobs.mail_addresses"},
    "jobs.outbox": {"jobs.delivery", "jobs.engine.text"},
    "jobs.error_mail": {"jobs.engine.text"},
    "jobs.management": {"jobs.models", "jobs.import_feed", "jobs.engine", "repositories"},
    "jobs.models": {
        *("jobs.models", "jobs.engine", "repositories"),
        *("jobs.attachments", "jobs.composing", "jobs.delivery", "jobs.error_mail"),
        "jobs.handover",
        *("jobs.mail_addresses", "jobs.notifications", "jobs.provider"),
    },
    "jobs.apps": {"jobs.checks", "jobs.engine"},
    "jobs.checks": set(),
    # The engine from below: each layer knows what is under it.
    "jobs.engine.conf": {"jobs.engine.arguments"},
    "jobs.engine.text": set(),
    "jobs.engine.identity": set(),
    "jobs.engine.weather": set(),
    "jobs.engine.supervisor": set(),
    "jobs.engine.retry": set(),
    "jobs.engine.arguments": set(),
    "jobs.engine.programs": set(),
    "jobs.engine.concurrency": {"jobs.engine.arguments"},
    "jobs.engine.history": set(),
    "jobs.engine.kinds": {"jobs.engine.enqueueing"},
    "jobs.engine.row": {"jobs.engine.conf", "jobs.engine.history", "jobs.engine.retry"},
    "jobs.engine.columns": {
        "jobs.engine.arguments",
        "jobs.engine.concurrency",
        "jobs.engine.conf",
        "jobs.engine.row",
    },
    "jobs.engine.enqueueing": {"jobs.engine.columns", "jobs.engine.row"},
    "jobs.engine.lifecycle": {
        "jobs.engine.concurrency",
        "jobs.engine.enqueueing",
        "jobs.engine.history",
        "jobs.engine.kinds",
        "jobs.engine.retry",
        "jobs.engine.row",
    },
    "jobs.engine.models": {"jobs.engine.kinds", "jobs.engine.schedules", "jobs.engine.task_job"},
    "jobs.engine.ageing": {"jobs.engine.lifecycle"},
    "jobs.engine.retention": {"jobs.engine.conf", "jobs.engine.lifecycle"},
    "jobs.engine.schedules": {"jobs.engine.lifecycle"},
    # Tasks: what is declared needs no models; the row and the backend stand on it.
    "jobs.engine.options": {
        "jobs.engine.arguments",
        "jobs.engine.concurrency",
        "jobs.engine.conf",
        "jobs.engine.retry",
    },
    "jobs.engine.tasks": {
        "jobs.engine.execution",  # these three for the type checker alone
        "jobs.engine.lifecycle",
        "jobs.engine.programs",
        "jobs.engine.options",
        "jobs.engine.retry",
    },
    "jobs.engine.calls": {
        "jobs.engine.concurrency",
        "jobs.engine.conf",
        "jobs.engine.options",
        "jobs.engine.retry",
        "jobs.engine.tasks",
    },
    "jobs.engine.results": {
        "jobs.engine.history",
        "jobs.engine.retry",
        "jobs.engine.row",
        "jobs.engine.task_job",  # for the type checker alone
        "jobs.engine.tasks",
        "jobs.engine.waiting",
    },
    "jobs.engine.task_job": {
        "jobs.engine.arguments",
        "jobs.engine.calls",
        "jobs.engine.conf",
        "jobs.engine.execution",
        "jobs.engine.lifecycle",
        "jobs.engine.options",
        "jobs.engine.results",
        "jobs.engine.retry",
        "jobs.engine.tasks",
    },
    "jobs.engine.backend": {
        "jobs.engine.arguments",
        "jobs.engine.calls",
        "jobs.engine.conf",
        "jobs.engine.options",
        "jobs.engine.results",
        "jobs.engine.retry",
        "jobs.engine.task_job",
        "jobs.engine.tasks",
    },
    "jobs.engine.coroutines": set(),
    "jobs.engine.wakeup": {"jobs.engine.enqueueing"},
    "jobs.engine.progress": {"jobs.engine.lifecycle", "jobs.engine.text"},
    "jobs.engine.execution": {
        "jobs.engine.coroutines",
        "jobs.engine.lifecycle",
        "jobs.engine.programs",
        "jobs.engine.progress",
        "jobs.engine.retry",
        "jobs.engine.text",
    },
    "jobs.engine.maintenance": {
        "jobs.engine.identity",
        "jobs.engine.kinds",
        "jobs.engine.lifecycle",
        "jobs.engine.schedules",
    },
    "jobs.engine.leaving": set(),
    "jobs.engine.loaded": set(),
    "jobs.engine.suspects": {
        "jobs.engine.isolation",
        "jobs.engine.leaving",
        "jobs.engine.lifecycle",
        "jobs.engine.worker",
    },
    "jobs.engine.isolation": {
        "jobs.engine.execution",
        "jobs.engine.lifecycle",
        "jobs.engine.loaded",
        "jobs.engine.maintenance",
        "jobs.engine.weather",
    },
    "jobs.engine.running": {"jobs.engine.execution", "jobs.engine.lifecycle", "jobs.engine.retry"},
    "jobs.engine.seats": {"jobs.engine.execution"},
    "jobs.engine.finishing": {
        "jobs.engine.execution",
        "jobs.engine.lifecycle",
        "jobs.engine.retry",
        "jobs.engine.running",
        "jobs.engine.wakeup",
        "jobs.engine.weather",
    },
    "jobs.engine.beat": {
        "jobs.engine.conf",
        "jobs.engine.execution",
        "jobs.engine.lifecycle",
        "jobs.engine.retry",
        "jobs.engine.running",
        "jobs.engine.wakeup",
        "jobs.engine.weather",
    },
    "jobs.engine.worker": {"jobs.engine"},
    "jobs.engine.crew": {"jobs.engine.lifecycle", "jobs.engine.maintenance", "jobs.engine.worker"},
    "jobs.engine.router": {"jobs.engine.conf", "jobs.engine.lifecycle"},
    "jobs.engine.testing": {"jobs.engine"},
    "jobs.engine.fixtures": {"jobs.engine"},
    "jobs.engine.job_admin": {"jobs.engine.lifecycle"},
    "jobs.engine.task_admin": {
        "jobs.engine.arguments",
        "jobs.engine.calls",
        "jobs.engine.conf",
        "jobs.engine.job_admin",
        "jobs.engine.retry",
        "jobs.engine.task_job",
        "jobs.engine.text",
    },
    "jobs.engine.admin": {
        "jobs.engine.job_admin",
        "jobs.engine.kinds",
        "jobs.engine.lifecycle",
        "jobs.engine.schedules",
        "jobs.engine.task_admin",
        "jobs.engine.task_job",
    },
    "jobs.engine.watching": {
        "jobs.engine.execution",
        "jobs.engine.lifecycle",
        "jobs.engine.wakeup",
        "jobs.engine.weather",
    },
    "jobs.engine.live": {"jobs.engine.execution", "jobs.engine.watching"},
    "jobs.engine.bar": {
        "jobs.engine.kinds",
        "jobs.engine.lifecycle",
        "jobs.engine.row",
        "jobs.engine.watching",
    },
    "jobs.engine.views": {"jobs.engine.bar", "jobs.engine.execution", "jobs.engine.watching"},
    "jobs.engine.urls": {"jobs.engine.views"},
    "jobs.engine.templatetags": {
        "jobs.engine.bar",
        "jobs.engine.lifecycle",
        "jobs.engine.models",
        "jobs.engine.row",
    },
    "jobs.engine.waiting": {"jobs.engine.lifecycle", "jobs.engine.watching"},
    "jobs.engine.checks": {"jobs.engine.conf", "jobs.engine.lifecycle"},
    "jobs.engine.apps": {"jobs.engine.checks", "jobs.engine.schedules", "jobs.engine.wakeup"},
    "jobs.engine.management": {"jobs.engine"},
}
# pytest is there for fixtures.py alone, which nothing imports but tests. asgiref is what Django
# itself runs coroutines and their queries with: coroutines.py must speak its language.
ENGINE_LIBRARIES = {"asgiref", "cronsim", "django", "django_eventstream", "pytest"}
VENDOR_BRANCHES = {"forge/settings.py", "jobs/engine/wakeup.py", "jobs/engine/checks.py"}


def sources() -> Iterator[tuple[str, Path, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "migrations" not in path.parts:
                name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                yield name.removesuffix(".__init__"), path, ast.parse(path.read_text())


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                path = ROOT / Path(*whole.split("."))
                is_module = path.with_suffix(".py").exists() or (path / "__init__.py").exists()
                yield whole if is_module else node.module


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def test_no_import_goes_against_the_arrows() -> None:
    against = []
    for name, _path, tree in sources():
        prefix = max((p for p in ARROWS if within(name, p)), key=len, default=None)
        assert prefix or name == "jobs" or name == "jobs.engine", f"{name} has no arrows"
        for target in imports(tree):
            ours = any(within(target, package) for package in PACKAGES)
            allowed = ARROWS.get(prefix or "", set())
            if ours and not any(within(target, good) for good in allowed):
                against.append(f"{name} -> {target}")
    assert not against


def test_the_engine_stands_on_few_libraries() -> None:
    import sys

    for name, _path, tree in sources():
        if within(name, "jobs.engine"):
            for target in imports(tree):
                top = target.partition(".")[0]
                assert top in {"jobs", *ENGINE_LIBRARIES} | sys.stdlib_module_names, (
                    f"{name} -> {target}"
                )


def test_bars_and_waiting_need_no_library_for_streams() -> None:
    users = {
        name for name, _path, tree in sources() if "django_eventstream" in str(set(imports(tree)))
    }
    assert users == {"jobs.engine.live"}


def test_only_the_state_machine_assigns_a_status() -> None:
    for name, _path, tree in sources():
        if name == "jobs.engine.lifecycle":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr == "status":
                assert isinstance(node.ctx, ast.Load), f"{name}:{node.lineno}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                writes = node.func.attr in {"update", "create", "bulk_update", "bulk_create"}
                names = {keyword.arg for keyword in node.keywords}
                assert not (writes and "status" in names), f"{name}:{node.lineno}"


def test_databases_are_told_apart_in_few_places() -> None:
    for _name, path, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr == "vendor":
                assert str(path.relative_to(ROOT)) in VENDOR_BRANCHES


def test_git_commands_are_built_in_one_file() -> None:
    for name, _path, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, (ast.List, ast.Tuple)) and node.elts:
                first = node.elts[0]
                if isinstance(first, ast.Constant) and first.value == "git":
                    assert name == "repositories.git", f"{name}:{node.lineno}"


def test_functions_fit_on_a_screen_and_modules_in_a_head() -> None:
    for name, path, tree in sources():
        assert path.read_text().count("\n") <= 350, name
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert (node.end_lineno or 0) - node.lineno < 40, f"{name}:{node.name}"


@pytest.mark.django_db
def test_every_change_of_a_model_has_its_migration() -> None:
    call_command(
        "makemigrations",
        "accounts",
        "repositories",
        "jobs",
        "jobs_engine",
        check=True,
        dry_run=True,
    )
