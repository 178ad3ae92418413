"""System checks: what is wrong with the settings or with a kind, said before anything runs."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured

from jobs.engine.conf import load
from jobs.engine.lifecycle import Job


def check_settings(**_kwargs: Any) -> Sequence[checks.CheckMessage]:
    """JOBS holds known keys and sensible values, and its seats name kinds that exist."""
    try:
        config = load(getattr(settings, "JOBS", {}))
    except ImproperlyConfigured as error:
        return [checks.Error(str(error), id="jobs_engine.E001")]
    known = {kind.kind for kind in Job.kinds()}
    return [
        checks.Warning(
            f"JOBS['SEATS'] names {name!r}, which is no kind of job.",
            hint=f"Kinds: {', '.join(sorted(known)) or 'none'}.",
            id="jobs_engine.W001",
        )
        for name in sorted(set(config.seats) - known)
    ]


def check_kinds(**_kwargs: Any) -> Sequence[checks.CheckMessage]:
    """Every kind has a short name of its own and inherited `Job.Meta`."""
    found: list[checks.CheckMessage] = []
    taken: dict[str, type[Job]] = {}
    for kind in Job.kinds():
        name = getattr(kind, "kind", "")
        if not name or not name.isidentifier() or len(name) > 40:
            found.append(
                checks.Error(
                    "A kind needs a short name of letters, digits and underscores.",
                    hint="As in: kind = 'import'",
                    obj=kind,
                    id="jobs_engine.E002",
                )
            )
        elif name in taken:
            found.append(
                checks.Error(
                    f"{taken[name].__name__} is called {name!r} too.",
                    obj=kind,
                    id="jobs_engine.E003",
                )
            )
        taken.setdefault(name, kind)
        missing = _missing_from_meta(kind)
        if missing:
            found.append(
                checks.Error(
                    f"The kind lacks {', '.join(missing)}.",
                    hint="Write `class Meta(Job.Meta):`, and add to its lists instead of replacing them.",
                    obj=kind,
                    id="jobs_engine.E004",
                )
            )
    return found


def _missing_from_meta(kind: type[Job]) -> list[str]:
    label = {"app_label": kind._meta.app_label, "class": kind._meta.model_name}
    wanted = [index.name for index in Job.Meta.indexes] + [
        rule.name for rule in Job.Meta.constraints
    ]
    there = {index.name for index in kind._meta.indexes} | {
        rule.name for rule in kind._meta.constraints
    }
    return sorted(name % label for name in wanted if name % label not in there)


def register_checks() -> None:
    checks.register(check_settings)
    checks.register(check_kinds, checks.Tags.models)
