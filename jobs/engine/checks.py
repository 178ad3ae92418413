"""System checks: what is wrong with the settings or with a kind, said before anything runs."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Info, Warning  # noqa: A004 - Django's own names
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections

from jobs.engine.conf import MOST_DAYS, Config, load
from jobs.engine.lifecycle import Job


def check_settings(**_kwargs: Any) -> Sequence[CheckMessage]:
    """JOBS holds known keys and sensible values, and its seats name kinds that exist."""
    try:
        config = load(getattr(settings, "JOBS", {}))
    except ImproperlyConfigured as error:
        return [Error(str(error), id="jobs_engine.E001")]
    return [
        *_time_zone(),
        *_unknown_seats(config),
        *_databases(config),
        *_apart(config),
        *_atomic_kinds(config),
        *_serving(),
    ]


def _time_zone() -> Iterator[CheckMessage]:
    if not settings.USE_TZ:
        yield Error(
            "USE_TZ is off: the times of jobs are moments, which need a time zone.",
            hint="Set USE_TZ = True.",
            id="jobs_engine.E005",
        )


def _unknown_seats(config: Config) -> Iterator[CheckMessage]:
    known = {kind.kind for kind in Job.kinds()}
    for name in sorted(set(config.seats) - known):
        yield Warning(
            f"JOBS['SEATS'] names {name!r}, which is no kind of job.",
            hint=f"Kinds: {', '.join(sorted(known)) or 'none'}.",
            id="jobs_engine.W001",
        )


def _databases(config: Config) -> Iterator[CheckMessage]:
    """The databases that kinds live in are set up so that many threads can use them."""
    kinds_by_alias: dict[str, list[type[Job]]] = {}
    for kind in Job.kinds():
        kinds_by_alias.setdefault(kind.objects.db, []).append(kind)
    for alias, kinds in kinds_by_alias.items():
        options = connections[alias].settings_dict.get("OPTIONS") or {}
        if connections[alias].vendor == "sqlite":
            yield from _sqlite(alias, str(connections[alias].settings_dict["NAME"]), options)
        pool = options.get("pool")
        seats = sum(config.seats_of(kind.kind) for kind in kinds)
        if isinstance(pool, dict) and (pool.get("max_size") or pool.get("min_size", 4)) < seats:
            yield Warning(
                f"The pool of DATABASES[{alias!r}] has fewer connections than the {seats} seats.",
                hint="Jobs that use the database wait for each other. Raise OPTIONS['pool']['max_size'].",
                id="jobs_engine.W002",
            )


def _sqlite(alias: str, name: str, options: dict[str, Any]) -> Iterator[CheckMessage]:
    if options.get("transaction_mode") != "IMMEDIATE":
        yield Warning(
            f"DATABASES[{alias!r}] is SQLite without transaction_mode IMMEDIATE.",
            hint="Workers will meet “database is locked”. Set OPTIONS['transaction_mode'] = 'IMMEDIATE'.",
            id="jobs_engine.W003",
        )
    if ":memory:" in name or "mode=memory" in name:
        yield Warning(
            f"DATABASES[{alias!r}] is an SQLite database in memory.",
            hint="No other process sees its jobs. Name a file.",
            id="jobs_engine.W004",
        )


def _apart(config: Config) -> Iterator[CheckMessage]:
    """A database of the jobs' own changes what is promised, and needs the router."""
    if config.database == DEFAULT_DB_ALIAS:
        return
    yield Info(
        f"Jobs without foreign keys live in DATABASES[{config.database!r}].",
        hint="They are inserted when the caller's transaction has committed; a crash between the "
        "two commits loses them.",
        id="jobs_engine.I001",
    )
    if "jobs.engine.router.JobsRouter" not in settings.DATABASE_ROUTERS:
        yield Warning(
            "JOBS['DATABASE'] is set, but DATABASE_ROUTERS lacks jobs.engine.router.JobsRouter.",
            hint="All jobs stay in the default database.",
            id="jobs_engine.W007",
        )


def _atomic_kinds(config: Config) -> Iterator[CheckMessage]:
    for kind in Job.kinds():
        if kind.atomic and kind.objects.db != DEFAULT_DB_ALIAS:
            yield Error(
                f"The kind is atomic and lives in DATABASES[{kind.objects.db!r}].",
                hint="What it writes to the default database is not in the transaction that "
                "completes it. Give it a foreign key, which keeps it there, or take `atomic` away.",
                obj=kind,
                id="jobs_engine.E009",
            )
        limit = kind.defaults.get("max_running_seconds", config.max_running_seconds)
        if kind.atomic and limit > config.lease_seconds / 3:
            yield Warning(
                f"The kind is atomic and may run for {limit:g} s, over a third of the lease.",
                hint="Its transaction keeps others waiting: lower max_running_seconds in `defaults`.",
                obj=kind,
                id="jobs_engine.W005",
            )


def _serving() -> Iterator[CheckMessage]:
    installed = "django_eventstream" in settings.INSTALLED_APPS
    if installed and not getattr(settings, "ASGI_APPLICATION", None):
        yield Warning(
            "Streams need ASGI, and ASGI_APPLICATION is not set.",
            hint="Under WSGI a stream holds its thread for ever and sends nothing.",
            id="jobs_engine.W006",
        )


def check_kinds(**_kwargs: Any) -> Sequence[CheckMessage]:
    """Every kind has a short name of its own and inherited `Job.Meta`."""
    found: list[CheckMessage] = []
    taken: dict[str, type[Job]] = {}
    for kind in Job.kinds():
        found += _name_faults(kind, taken)
        found += _days(kind)
        missing = _missing_from_meta(kind)
        if missing:
            found.append(
                Error(
                    f"The kind lacks {', '.join(missing)}.",
                    hint="Write `class Meta(Job.Meta):`, and add to its lists instead of replacing them.",
                    obj=kind,
                    id="jobs_engine.E004",
                )
            )
    return found


def _name_faults(kind: type[Job], taken: dict[str, type[Job]]) -> Iterator[CheckMessage]:
    name = getattr(kind, "kind", "")
    if not isinstance(name, str) or not name.isidentifier() or len(name) > 40:
        yield Error(
            "A kind needs a short name of letters, digits and underscores.",
            hint="As in: kind = 'import'",
            obj=kind,
            id="jobs_engine.E002",
        )
    elif name in taken:
        yield Error(
            f"{taken[name].__name__} is called {name!r} too.", obj=kind, id="jobs_engine.E003"
        )
    taken.setdefault(name, kind)


def _days(kind: type[Job]) -> Iterator[CheckMessage]:
    days = kind.retention_days
    if days is not None and not 0 < days <= MOST_DAYS:
        yield Error(
            f"retention_days must be above 0 and at most {MOST_DAYS}, not {days!r}.",
            obj=kind,
            id="jobs_engine.E008",
        )


def _missing_from_meta(kind: type[Job]) -> list[str]:
    label = {"app_label": kind._meta.app_label, "class": kind._meta.model_name}
    rules = [index.name for index in Job.Meta.indexes]
    rules += [constraint.name for constraint in Job.Meta.constraints]
    there = {index.name for index in kind._meta.indexes}
    there |= {constraint.name for constraint in kind._meta.constraints}
    return sorted(name % label for name in rules if name % label not in there)


def register_checks() -> None:
    checks.register(check_settings)
    checks.register(check_kinds, checks.Tags.models)
