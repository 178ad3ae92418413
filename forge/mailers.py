"""MAILERS and what belongs to it, read from the environment."""

import ipaddress
import os
import re
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from jobs.mail_addresses import MOST_RECIPIENTS, ascii_domain, bare, normal

QUEUE = "jobs.mail.QueuedEmailBackend"
# As high as there is: a link that lives for minutes waits behind no campaign.
URGENT_PRIORITY = 100
SMTP_SECONDS = 15
SMTP_SCHEMES = {"smtp": "", "smtp+tls": "use_tls", "smtps": "use_ssl"}
LONGEST_HOST = 253
LONGEST_FROM = 255
"""Characters in UTF-16, of which Postmark takes no more in a sender and its name."""
# Postmark's documents name no rule; its own streams and all its examples are written so.
STREAM = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}", re.IGNORECASE)


def variable(name: str) -> str:
    """What the environment says, without blanks around it; compose.yaml hands on empty ones."""
    return os.environ.get(name, "").strip()


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
    token, url = variable("POSTMARK_SERVER_TOKEN"), variable("SMTP_URL")
    if token:
        return {"BACKEND": "jobs.postmark.PostmarkBackend", "OPTIONS": postmark(token)}
    if url:
        return {"BACKEND": "jobs.smtp.SmtpBackend", "OPTIONS": smtp(url)}
    return {"BACKEND": "jobs.outbox.OutboxBackend"}


def postmark(token: str) -> dict[str, Any]:
    example = "https://api.postmarkapp.com"
    api_url = (variable("POSTMARK_API_URL") or example).rstrip("/")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ImproperlyConfigured("POSTMARK_SERVER_TOKEN holds characters that no token has.")
    parts = split("POSTMARK_API_URL", api_url, example=example)
    named = parts.username is not None or parts.password is not None
    if parts.scheme not in ("http", "https") or parts.query or parts.fragment or named:
        raise wrong_url("POSTMARK_API_URL", example=example)
    stream = variable("POSTMARK_MESSAGE_STREAM") or "outbound"
    if not STREAM.fullmatch(stream):
        raise ImproperlyConfigured(
            "POSTMARK_MESSAGE_STREAM must be the id of a message stream, as in outbound: "
            f"letters, digits and hyphens, not {stream!r:.100}."
        )
    return {"token": token, "api_url": api_url, "stream": stream}


def smtp(url: str) -> dict[str, Any]:
    """The options of the SMTP backend; the URL may hold a password, so no error repeats it."""
    example = "smtp+tls://name:password@mail.example.org:587"
    parts = split("SMTP_URL", url, example=example)
    if parts.scheme not in SMTP_SCHEMES or parts.path.strip("/") or parts.query or parts.fragment:
        raise wrong_url("SMTP_URL", example=example)
    name, password = (_unquoted(text) for text in (parts.username, parts.password))
    if bool(name) != bool(password) or (parts.username is not None and not name):
        raise ImproperlyConfigured("SMTP_URL must hold both a name and a password, or neither.")
    secure = SMTP_SCHEMES[parts.scheme]
    return {
        "host": _host(parts.hostname or ""),
        "port": parts.port,
        "username": name,
        "password": password,
        "timeout": SMTP_SECONDS,
        **({secure: True} if secure else {}),
    }


def _unquoted(text: str | None) -> str:
    """A name or password out of SMTP_URL; the library that signs in knows ASCII alone."""
    if re.search(r"%(?![0-9a-fA-F]{2})", text or ""):
        raise ImproperlyConfigured("SMTP_URL: a % in its name or password is written as %25.")
    plain = unquote(text or "", errors="replace")
    if not (plain.isascii() and plain.isprintable()):
        raise ImproperlyConfigured(
            "SMTP_URL: its name and password may hold printable ASCII characters alone."
        )
    return plain


def split(name: str, url: str, *, example: str) -> SplitResult:
    """The parts of an address whose host could be one."""
    try:
        parts = urlsplit(url)
        # What cannot be seen urlsplit takes away itself, and says nothing.
        usable = url.isprintable() and " " not in url and parts.port != 0
        usable = usable and bool(_host(parts.hostname or ""))
    except ValueError:
        usable = False
    if not usable:
        raise wrong_url(name, example=example)
    return parts


def _host(host: str) -> str:
    """A host as it is connected to; raises ValueError for what is none."""
    if ":" in host:
        return str(ipaddress.IPv6Address(unquote(host)))
    # No domain has underscores; names within a network of containers do.
    is_local = host.isascii() and "_" in host and ascii_domain(host.replace("_", "a"))
    ascii_form = host if is_local else ascii_domain(host)
    if len(ascii_form) > LONGEST_HOST:
        raise ValueError("the host is too long")
    if ascii_form.rstrip(".").rpartition(".")[2].isdigit():
        return str(ipaddress.IPv4Address(ascii_form))
    return ascii_form


def wrong_url(name: str, *, example: str) -> ImproperlyConfigured:
    schemes = ", ".join(f"{scheme}://" for scheme in SMTP_SCHEMES)
    hint = f", with {schemes}" if name == "SMTP_URL" else ""
    return ImproperlyConfigured(f"{name} must be an address as in {example}{hint}.")


def mail_from(host: str) -> str:
    """The address that mail comes from; by default one at the host of FORGE_URL."""
    default = f"Forge <forge@{'localhost' if is_number(host) else host}>"
    address = checked("FORGE_MAIL_FROM", variable("FORGE_MAIL_FROM") or default)
    if len(address.encode("utf-16-le")) > 2 * LONGEST_FROM:
        raise ImproperlyConfigured(
            f"FORGE_MAIL_FROM has more than {LONGEST_FROM} characters: give it a shorter name."
        )
    return address


def is_number(host: str) -> bool:
    """Whether a host is an IP address, as it stands in a URL."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def admins() -> list[str]:
    """Who is told of errors in pages, by one mail."""
    listed = [address.strip() for address in variable("ADMINS").split(",")]
    found = [bare(checked("ADMINS", address)) for address in listed if address]
    if len(found) > MOST_RECIPIENTS:
        raise ImproperlyConfigured(
            f"ADMINS may hold {MOST_RECIPIENTS} addresses, not {len(found)}."
        )
    return found


def checked(name: str, address: str) -> str:
    try:
        found = normal(address)
        found.encode()
    except UnicodeEncodeError:
        raise ImproperlyConfigured(f"{name} is no UTF-8.") from None
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: {error}") from None
    return found
