"""Forge's settings, with a data directory of the test run and the kinds that only tests need.

conftest.py has put DATABASE_URL and FORGE_DATA_DIR into the environment before this is read.
"""

import json
import os

from forge.settings import *  # noqa: F403
from forge.settings import DATABASES, INSTALLED_APPS, MAILERS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.kinds"]
TASKS = {
    "default": {
        "BACKEND": "jobs.engine.backend.JobsBackend",
        "QUEUES": ["default", "mail", "slow"],
    },
    "patient": {
        "BACKEND": "jobs.engine.backend.JobsBackend",
        "OPTIONS": {"max_attempts": 7, "backoff": 60, "retention": 30},
    },
}
MAILERS = {
    **MAILERS,
    "campaign": {"BACKEND": "jobs.mail.QueuedEmailBackend", "OPTIONS": {"per_minute": 600}},
}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# Room for the seats of kinds that only tests have.
if "pool" in DATABASES["default"]["OPTIONS"]:
    DATABASES["default"]["OPTIONS"]["pool"]["max_size"] = 40
# A single process of a test may have a smaller pool or less patience.
DATABASES["default"]["OPTIONS"].update(json.loads(os.environ.get("TEST_DATABASE_OPTIONS", "{}")))
