"""MAILERS and what belongs to it, read from the environment."""

import ipaddress
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured

from jobs.mail_addresses import bare, normal

env = environ.Env()

QUEUE = "jobs.mail.QueuedEmailBackend"
# As high as there is: a link that lives for minutes waits behind no campaign.
URGENT_PRIORITY = 100
SMTP_SECONDS = 15
SMTP_SCHEMES = {"smtp": "", "smtp+tls": "use_tls", "smtps": "use_ssl"}


def mailers() -> dict[str, dict[str, Any]]:
    """`default` and `urgent` queue what is sent; the worker delivers through `delivery`."""
    urgent = {"priority": URGENT_PRIORITY, "max_attempts": 4}
    return {
        "default": {"BACKEND": QUEUE},
        "urgent": {"BACKEND": QUEUE, "OPTIONS": urgent},
        "delivery": delivery(),
    }


def delivery() -> dict[str, Any]:
    """Postmark where there is a token, else SMTP where there is a URL, else nobody."""
    token = env.str("POSTMARK_SERVER_TOKEN", default="").strip()
    url = env.str("SMTP_URL", default="").strip()
    if token:
        return {"BACKEND": "jobs.postmark.PostmarkBackend", "OPTIONS": postmark(token)}
    if url:
        return {"BACKEND": "jobs.smtp.SmtpBackend", "OPTIONS": smtp(url)}
    return {"BACKEND": "jobs.outbox.OutboxBackend"}


def postmark(token: str) -> dict[str, Any]:
    api_url = env.str("POSTMARK_API_URL", default="https://api.postmarkapp.com").rstrip("/")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ImproperlyConfigured("POSTMARK_SERVER_TOKEN holds characters that no token has.")
    parts = split("POSTMARK_API_URL", api_url, example="https://api.postmarkapp.com")
    if parts.scheme not in ("http", "https") or parts.query or parts.fragment:
        raise wrong_url("POSTMARK_API_URL", example="https://api.postmarkapp.com")
    stream = env.str("POSTMARK_MESSAGE_STREAM", default="outbound")
    return {"token": token, "api_url": api_url, "stream": stream}


def smtp(url: str) -> dict[str, Any]:
    """The options of the SMTP backend; the URL may hold a password, so no error repeats it."""
    example = "smtp+tls://name:password@mail.example.org:587"
    parts = split("SMTP_URL", url, example=example)
    if parts.scheme not in SMTP_SCHEMES or parts.path.strip("/") or parts.query or parts.fragment:
        raise wrong_url("SMTP_URL", example=example)
    if (parts.username is None) != (parts.password is None):
        raise ImproperlyConfigured("SMTP_URL must hold both a name and a password, or neither.")
    secure = SMTP_SCHEMES[parts.scheme]
    return {
        "host": parts.hostname,
        "port": parts.port,
        "username": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "timeout": SMTP_SECONDS,
        **({secure: True} if secure else {}),
    }


def split(name: str, url: str, *, example: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        usable = parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise wrong_url(name, example=example)
    return parts


def wrong_url(name: str, *, example: str) -> ImproperlyConfigured:
    schemes = ", ".join(f"{scheme}://" for scheme in SMTP_SCHEMES)
    hint = f", with {schemes}" if name == "SMTP_URL" else ""
    return ImproperlyConfigured(f"{name} must be an address as in {example}{hint}.")


def mail_from(host: str) -> str:
    """The address that mail comes from; by default one at the host of FORGE_URL."""
    given = env.str("FORGE_MAIL_FROM", default="").strip()
    default = f"Forge <forge@{'localhost' if is_number(host) else host}>"
    return checked("FORGE_MAIL_FROM", given or default)


def is_number(host: str) -> bool:
    """Whether a host is an IP address, as it stands in a URL."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def admins() -> list[str]:
    """Who is told of errors in pages."""
    listed = [address.strip() for address in env.list("ADMINS", default=[])]
    return [bare(checked("ADMINS", address)) for address in listed if address]


def checked(name: str, address: str) -> str:
    try:
        return normal(address)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: {error}") from None
