import os

from django.apps import AppConfig


class TestKindsConfig(AppConfig):
    name = "tests.kinds"
    label = "kinds"

    def ready(self) -> None:
        """A worker process of a test may have less patience with what ignores its end."""
        from jobs.engine import beat

        beat.SECONDS_TO_OBEY = float(os.environ.get("TEST_SECONDS_TO_OBEY", beat.SECONDS_TO_OBEY))
