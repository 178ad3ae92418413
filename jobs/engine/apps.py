from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class EngineConfig(AppConfig):
    name = "jobs.engine"
    label = "jobs_engine"
    verbose_name = _("Job engine")

    def ready(self) -> None:
        from jobs.engine import checks, wakeup

        checks.register_checks()
        wakeup.connect_signals()
