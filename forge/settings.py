"""Settings of Forge, read from the environment. The table of names is in README.md."""

import os
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured
from django.utils.csp import CSP

from forge import mailers
from forge.variables import choice, domains, networks, number, switch

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.Env()


def data_directory() -> Path:
    """FORGE_DATA_DIR, made where it is not there yet; others on the machine may not look into it."""
    path = Path(env.str("FORGE_DATA_DIR", default=str(BASE_DIR / "data"))).resolve()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise unusable(path, error) from error
    return path


def unusable(path: Path, error: OSError) -> ImproperlyConfigured:
    reason = "it is not a directory" if path.is_file() else error.strerror
    return ImproperlyConfigured(
        f"FORGE_DATA_DIR {path} cannot be used: {reason}. "
        "Forge keeps its database, repositories and secret key there."
    )


def kept_secret_key(data_dir: Path) -> str:
    """The key kept in the data directory; made on the first start.

    Several processes may start at once: each writes a file of its own, and the first to link it
    under the final name decides for all.
    """
    kept = data_dir / "secret_key"
    try:
        if not kept.exists():
            mine = data_dir / f"secret_key.{os.getpid()}.{secrets.token_hex(4)}"
            with open(os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_urlsafe(50))
            try:
                os.link(mine, kept)
            except FileExistsError:
                pass
            finally:
                mine.unlink()
        key = kept.read_bytes().strip().decode("ascii")
    except OSError as error:
        raise unusable(data_dir, error) from error
    except UnicodeDecodeError:
        raise ImproperlyConfigured(
            f"{kept} holds no key. Delete it to have a new one made."
        ) from None
    if not key:
        raise ImproperlyConfigured(f"{kept} is empty. Delete it to have a new key made.")
    return key


def databases(data_dir: Path) -> dict[str, dict[str, Any]]:
    """`default`, and `jobs` where the jobs have a database of their own."""
    found = {"default": database("DATABASE_URL", data_dir, "forge.sqlite3")}
    if os.environ.get("JOBS_DATABASE_URL"):
        found["jobs"] = database("JOBS_DATABASE_URL", data_dir, "jobs.sqlite3")
    return found


def database(name: str, data_dir: Path, file: str) -> dict[str, Any]:
    """The one place that knows SQLite from PostgreSQL; `name` is the variable that says which."""
    url = os.environ.get(name) or f"sqlite:///{data_dir / file}"
    if not url.startswith(("sqlite:", "postgresql:", "postgres:")):
        raise ImproperlyConfigured(f"{name} must be sqlite:///… or postgresql://….")
    try:
        found: dict[str, Any] = env.db_url_config(url)
    except (ValueError, environ.ImproperlyConfigured) as error:
        raise ImproperlyConfigured(f"{name} cannot be read: {error}") from error
    found["CONN_MAX_AGE"] = 0
    if found["ENGINE"] == "django.db.backends.sqlite3":
        found["OPTIONS"] = {
            # Taking the write lock at BEGIN is what makes claims and upgrades of a read safe.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;",
        }
        if ":memory:" in found["NAME"]:
            raise ImproperlyConfigured(
                f"{name} must name a file: web and worker cannot share a database in memory."
            )
        # A file, because another process or thread cannot see a database in memory.
        found["TEST"] = {"NAME": str(data_dir / f"test-{file}")}
    else:
        # A connection that a restarted server has closed is found out before it is used.
        found["ENGINE"] = "forge.postgresql"
        found["OPTIONS"] = {
            **found.get("OPTIONS", {}),
            # After an outage the pool tries again when it is asked, at most seconds later.
            "pool": {"min_size": 1, "max_size": 20, "timeout": 10, "reconnect_timeout": 4},
        }
    return found


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
            given[name] = number(f"JOBS_{name}", text, convert)
    if "JOBS_SEATS" in os.environ:
        given["SEATS"] = os.environ["JOBS_SEATS"]
    if os.environ.get("JOBS_DATABASE_URL"):
        given["DATABASE"] = "jobs"
    return given


def public_address(url: str) -> tuple[str, str]:
    """(host, origin) of FORGE_URL, the host as it stands in a Host header."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _no_address(url) from None
    more = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
    if parts.scheme not in ("http", "https") or not host or port == 0 or more:
        raise _no_address(url)
    return f"[{host}]" if ":" in host else host, f"{parts.scheme}://{parts.netloc}"


def _no_address(url: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(
        f"FORGE_URL must be an address such as https://forge.example.org, not {url!r}."
    )


FORGE_DATA_DIR = data_directory()
FORGE_URL = env.str("FORGE_URL", default="http://127.0.0.1:8000").rstrip("/")
FORGE_HOST, FORGE_ORIGIN = public_address(FORGE_URL)
FORGE_IMPORT_ALLOWED_NETWORKS = networks("FORGE_IMPORT_ALLOWED_NETWORKS")
# forge.web hands them to the server, which would take nonsense for a name that never comes.
FORGE_TRUSTED_PROXIES = networks("FORGE_TRUSTED_PROXIES")
FORGE_SIGN_UP = choice("FORGE_SIGN_UP", ["closed", "open", "domains"])
FORGE_SIGN_UP_DOMAINS = domains("FORGE_SIGN_UP_DOMAINS")
if bool(FORGE_SIGN_UP_DOMAINS) != (FORGE_SIGN_UP == "domains"):
    raise ImproperlyConfigured(
        "FORGE_SIGN_UP=domains and a list in FORGE_SIGN_UP_DOMAINS belong together."
    )

DEBUG = switch("DEBUG")
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
    "forge.middleware.only_utf8",
    "django.middleware.security.SecurityMiddleware",
    "servestatic.middleware.ServeStaticMiddleware",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    # Behind the one that counts an answer's bytes.
    "forge.middleware.words_for_empty_answers",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "forge.middleware.TheirLanguage",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "accounts.middleware.SayTooMany",
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
TASKS = {"default": {"BACKEND": "jobs.engine.backend.JobsBackend"}}
DATABASE_ROUTERS = ["jobs.engine.router.JobsRouter"]

AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = [
    "accounts.passwords.LimitedBackend",
    # Sessions of those who signed in before there was the other one name it.
    "django.contrib.auth.backends.ModelBackend",
]
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

MAILERS = mailers.mailers()
DEFAULT_FROM_EMAIL = SERVER_EMAIL = mailers.mail_from(FORGE_HOST)
EMAIL_SUBJECT_PREFIX = "[Forge] "
ADMINS = mailers.admins()

LANGUAGE_CODE = "en"
# By their own names, as those look for them who read no other.
LANGUAGES = [("en", "English"), ("fr", "Français")]
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
    "formatters": {
        "line": {
            "()": "forge.logs.WithoutTokens",
            "format": "{asctime} {levelname} {name}: {message}",
            "style": "{",
        }
    },
    "filters": {"on_duty": {"()": "django.utils.log.RequireDebugFalse"}},
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": "line"},
        "mail": {
            "class": "jobs.error_mail.ErrorMailHandler",
            "hide": "forge.logs.without_tokens",
            "level": "ERROR",
            "filters": ["on_duty"],
        },
    },
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {
        **{name: {"level": "INFO"} for name in ("forge", "accounts", "repositories", "jobs")},
        "django": {"handlers": ["mail"], "level": "INFO"},
        # What host a stranger names is no news for an administrator.
        "django.security.DisallowedHost": {"handlers": ["stderr"], "propagate": False},
        # A page that is not there is the visitor's matter.
        "django.request": {"level": "ERROR"},
    },
}
