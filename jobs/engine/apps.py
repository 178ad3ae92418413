from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy as _


class EngineConfig(AppConfig):
    name = "jobs.engine"
    label = "jobs_engine"
    verbose_name = _("Job engine")
    # Whatever the project's DEFAULT_AUTO_FIELD is: the migrations are made.
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from jobs.engine import checks, wakeup

        checks.register_checks()
        post_migrate.connect(make_built_in_schedules, sender=self)
        wakeup.connect_signals()


def make_built_in_schedules(*, using: str, **_kwargs: Any) -> None:
    """What every installation does again and again; a person may change or disable it."""
    from jobs.engine.schedules import built_in

    built_in(
        "retention", cron="17 * * * *", task="jobs.engine.retention.delete_old_jobs", using=using
    )
