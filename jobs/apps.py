from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy as _


class JobsConfig(AppConfig):
    name = "jobs"
    verbose_name = _("Jobs")

    def ready(self) -> None:
        from jobs import checks

        checks.register_checks()
        post_migrate.connect(make_built_in_schedules, sender=self)


def make_built_in_schedules(*, using: str, **_kwargs: Any) -> None:
    """What Forge does by itself; a person may change or disable it."""
    from jobs.engine.schedules import built_in

    built_in("orphans", cron="41 3 * * *", task="repositories.storage.sweep_orphans", using=using)
    built_in("attachments", cron="51 3 * * *", task="jobs.sweeping.sweep_attachments", using=using)
    built_in("mail-pauses", cron="29 * * * *", task="jobs.provider.watch", using=using)
    built_in("sign-in", cron="17 * * * *", task="accounts.signing_in.sweep", using=using)
