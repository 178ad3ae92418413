"""A task that does what a test tells it to."""

from typing import Any

from django.tasks import task

from jobs.engine.tasks import JobContext
from tests.kinds import scripts


@task(takes_context=True)
def play(context: JobContext, script: str, argument: str) -> Any:
    return scripts.play(script, context, argument)
