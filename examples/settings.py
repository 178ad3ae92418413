"""One small project with the engine and three apps. Each app's README.md says what it shows."""

import os
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
DATA = Path(os.environ.get("EXAMPLES_DATA", FOLDER / "data"))
DATA.mkdir(exist_ok=True)

# In a checkout `jobs.engine` lies beside this folder. Last, so that an installed one goes before.
sys.path.append(str(FOLDER.parent))

SECRET_KEY = "for the examples alone"  # noqa: S105
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "urls"
STATIC_URL = "static/"

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.staticfiles",
    "jobs.engine",
    "sales_report",
    "csv_import",
    "mail_campaign",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]

TASKS = {"default": {"BACKEND": "jobs.engine.backend.JobsBackend"}}

if "PGDATABASE" in os.environ:
    # Host, port and user are in PGHOST, PGPORT and PGUSER, as for psql.
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": os.environ["PGDATABASE"],
        }
    }
else:
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": DATA / "examples.sqlite3",
            "OPTIONS": {
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                # Without synchronous=NORMAL: a power cut must not undo the mark of a mail.
                "init_command": "PRAGMA journal_mode=WAL;",
            },
        }
    }

MAILERS = {
    "default": {
        "BACKEND": "django.core.mail.backends.smtp.EmailBackend",
        "OPTIONS": {
            "host": "127.0.0.1",
            "port": int(os.environ.get("SMTP_PORT", "8025")),
            "timeout": 30,
        },
    }
}
DEFAULT_FROM_EMAIL = "news@example.org"
