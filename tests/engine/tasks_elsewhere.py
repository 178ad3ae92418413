"""Tasks that were declared while another backend was configured, as in a project that moves."""

from django.tasks import task
from django.test import override_settings

from jobs.engine.tasks import job_options

IMMEDIATE = {"default": {"BACKEND": "django.tasks.backends.immediate.ImmediateBackend"}}

with override_settings(TASKS=IMMEDIATE):

    @task
    @job_options(max_attempts=6)
    def declared_elsewhere(number: int) -> int:
        return number


@task
@job_options(atomic=True)
def write_nothing_atomically() -> None:
    return None
