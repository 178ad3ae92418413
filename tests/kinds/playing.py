"""A function that does what a test tells it to, run as a task by its dotted path."""

from typing import Any

from jobs.engine.models import TaskJob
from tests.kinds import scripts


class Alone:
    """What a plain function can know of its run."""

    def __init__(self, pk: str) -> None:
        self.job = TaskJob.objects.get(pk=pk)
        self.attempt = self.job.attempts

    def check(self) -> None:
        """Nobody tells a plain function that it is to end."""


def play(pk: str, script: str, argument: str) -> Any:
    return scripts.play(script, Alone(pk), argument)
