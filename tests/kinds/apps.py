from django.apps import AppConfig


class TestKindsConfig(AppConfig):
    name = "tests.kinds"
    label = "kinds"
