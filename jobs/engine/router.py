"""Which kinds live in the database that JOBS["DATABASE"] names."""

from typing import Any

from django.apps import apps
from django.db import DEFAULT_DB_ALIAS, models

from jobs.engine.conf import config
from jobs.engine.lifecycle import Job

Model = type[models.Model]


def is_apart(model: Model) -> bool:
    """The engine's own tables, and kinds without foreign keys, which bind nothing to elsewhere.

    A table that belongs to such a kind says so by `beside_jobs = True`.
    """
    if model._meta.app_label == "jobs_engine" or getattr(model, "beside_jobs", False):
        return True
    return issubclass(model, Job) and not any(field.is_relation for field in model._meta.fields)


class JobsRouter:
    """For DATABASE_ROUTERS, where the jobs have a database of their own."""

    def db_for_read(self, model: Model, **_hints: Any) -> str | None:
        return config().database if is_apart(model) else None

    def db_for_write(self, model: Model, **_hints: Any) -> str | None:
        return config().database if is_apart(model) else None

    def allow_migrate(
        self, db: str, app_label: str, model_name: str | None = None, **_hints: Any
    ) -> bool | None:
        # The engine's tables are in both: kinds that stay need the lock beside them.
        if config().database == DEFAULT_DB_ALIAS or app_label == "jobs_engine":
            return None
        apart = model_name is not None and is_apart(apps.get_model(app_label, model_name))
        if db == config().database:
            return apart
        return False if apart else None
