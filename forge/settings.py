"""Settings of Forge, read from the environment. The table of names is in README.md."""

import ipaddress
import os
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured
from django.utils.csp import CSP
from django.utils.translation import gettext_lazy as _

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.Env()


def kept_secret_key(data_dir: Path) -> str:
    """The key kept in the data directory; made on the first start.

    Several processes may start at once: each writes a file of its own, and the first to link it
    under the final name decides for all.
    """
    kept = data_dir / "secret_key"
    try:
        if not kept.exists():
            data_dir.mkdir(parents=True, exist_ok=True)
            mine = data_dir / f"secret_key.{os.getpid()}.{secrets.token_hex(4)}"
            with open(os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_urlsafe(50))
            try:
                os.link(mine, kept)
            except FileExistsError:
                pass
            finally:
                mine.unlink()
        key = kept.read_text().strip()
    except OSError as error:
        raise ImproperlyConfigured(
            f"FORGE_DATA_DIR {data_dir} cannot be used: {error.strerror}. "
            "Forge keeps its database, repositories and secret key there."
        ) from error
    if not key:
        raise ImproperlyConfigured(f"{kept} is empty. Delete it to have a new key made.")
    return key


def databases(data_dir: Path) -> dict[str, dict[str, Any]]:
    """The one place that knows SQLite from PostgreSQL."""
    try:
        database: dict[str, Any] = env.db_url(
            "DATABASE_URL", default=f"sqlite:///{data_dir / 'forge.sqlite3'}"
        )
    except (ValueError, environ.ImproperlyConfigured) as error:
        raise ImproperlyConfigured(f"DATABASE_URL cannot be read: {error}") from error
    database["CONN_MAX_AGE"] = 0
    # A connection that a restarted server has closed is found out before it is used.
    database["CONN_HEALTH_CHECKS"] = True
    if database["ENGINE"] == "django.db.backends.sqlite3":
        database["OPTIONS"] = {
            # Taking the write lock at BEGIN is what makes claims and upgrades of a read safe.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;",
        }
        # A file, because another process or thread cannot see a database in memory.
        database["TEST"] = {"NAME": str(data_dir / "test.sqlite3")}
    elif database["ENGINE"] == "django.db.backends.postgresql":
        database["OPTIONS"] = {
            **database.get("OPTIONS", {}),
            "pool": {"min_size": 1, "max_size": 20, "timeout": 10},
        }
    else:
        raise ImproperlyConfigured("DATABASE_URL must be sqlite:///… or postgresql://….")
    return {"default": database}


def engine_settings() -> dict[str, Any]:
    """JOBS, filled from JOBS_… variables; jobs.engine.conf knows the defaults and checks the values."""
    numbers: dict[str, type] = {
        "LEASE_SECONDS": float,
        "HEARTBEAT_SECONDS": float,
        "POLL_SECONDS": float,
        "GRACE_SECONDS": float,
        "RETENTION_DAYS": float,
        "MAX_ATTEMPTS": int,
        "MAX_RUNNING_SECONDS": float,
        "BACKOFF_BASE": float,
        "BACKOFF_CAP_SECONDS": float,
        "MAX_ABANDONED": int,
        "MAX_PAYLOAD_BYTES": int,
    }
    given: dict[str, Any] = {}
    for name, convert in numbers.items():
        text = os.environ.get(f"JOBS_{name}")
        if text is not None:
            try:
                given[name] = convert(text)
            except ValueError:
                raise ImproperlyConfigured(f"JOBS_{name} must be a number, not {text!r}.") from None
    if "JOBS_SEATS" in os.environ:
        given["SEATS"] = os.environ["JOBS_SEATS"]
    return given


def networks(name: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """A comma-separated list of networks, as in `10.0.0.0/8,fd00::/8`."""
    try:
        return [
            ipaddress.ip_network(part.strip())
            for part in env.list(name, default=[])
            if part.strip()
        ]
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: {error}") from error


def public_address(url: str) -> tuple[str, str]:
    """(host, origin) of FORGE_URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ImproperlyConfigured(f"FORGE_URL must be an http or https address, not {url!r}.")
    return parts.hostname, f"{parts.scheme}://{parts.netloc}"


FORGE_DATA_DIR = Path(env.str("FORGE_DATA_DIR", default=str(BASE_DIR / "data"))).resolve()
FORGE_URL = env.str(
    "FORGE_URL", default=f"http://127.0.0.1:{env.int('FORGE_PORT', default=8000)}"
).rstrip("/")
FORGE_HOST, FORGE_ORIGIN = public_address(FORGE_URL)
FORGE_IMPORT_ALLOWED_NETWORKS = networks("FORGE_IMPORT_ALLOWED_NETWORKS")

DEBUG = env.bool("DEBUG", default=False)
SECRET_KEY = env.str("SECRET_KEY", default="") or kept_secret_key(FORGE_DATA_DIR)
ALLOWED_HOSTS = [
    *env.list("ALLOWED_HOSTS", default=[]),
    FORGE_HOST,
    "127.0.0.1",
    "localhost",
    "[::1]",
]
CSRF_TRUSTED_ORIGINS = [FORGE_ORIGIN]
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = FORGE_ORIGIN.startswith("https://")

INSTALLED_APPS = [
    "forge",
    "accounts",
    "repositories",
    "jobs",
    "jobs.engine",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_eventstream",
    "django_htmx",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "servestatic.middleware.ServeStaticMiddleware",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "forge.urls"
ASGI_APPLICATION = "forge.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.csp",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = databases(FORGE_DATA_DIR)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
JOBS = engine_settings()

AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
_VALIDATORS = "django.contrib.auth.password_validation"
AUTH_PASSWORD_VALIDATORS: list[dict[str, Any]] = [
    {
        "NAME": f"{_VALIDATORS}.UserAttributeSimilarityValidator",
        "OPTIONS": {"user_attributes": ("email", "handle")},
    },
    {"NAME": f"{_VALIDATORS}.MinimumLengthValidator"},
    {"NAME": f"{_VALIDATORS}.CommonPasswordValidator"},
    {"NAME": f"{_VALIDATORS}.NumericPasswordValidator"},
]
LOGIN_URL = "sign_in"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "sign_in"

SECURE_CSP = {
    "default-src": [CSP.SELF],
    "script-src": [CSP.SELF, CSP.NONCE],
    "style-src": [CSP.SELF, CSP.NONCE],
    "img-src": [CSP.SELF, "data:"],
    "object-src": [CSP.NONE],
    "base-uri": [CSP.NONE],
    "form-action": [CSP.SELF],
    "frame-ancestors": [CSP.NONE],
}
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

LANGUAGE_CODE = "en"
LANGUAGES = [("en", _("English"))]
LOCALE_PATHS = [BASE_DIR / "locale"]
TIME_ZONE = "UTC"
USE_TZ = True

EVENTSTREAM_CHANNELMANAGER_CLASS = "jobs.engine.live.Channels"

STATIC_URL = "static/"
STATIC_ROOT = FORGE_DATA_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
SERVESTATIC_USE_FINDERS = True

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {name: {"level": "INFO"} for name in ("forge", "accounts", "repositories", "jobs")},
}
