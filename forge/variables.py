"""Words that the environment may hold, read strictly: what makes no sense is said, not guessed."""

import ipaddress
import math
import os
import re
from collections.abc import Sequence
from typing import Any

import idna
from django.core.exceptions import ImproperlyConfigured

YES = frozenset({"1", "true", "yes", "y", "on", "ok"})
NO = frozenset({"", "0", "false", "no", "n", "off"})
_DOMAIN = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))*")


def switch(name: str) -> bool:
    """Whether the variable says on; off when it is not given."""
    text = os.environ.get(name, "")
    if text.strip().lower() in YES:
        return True
    if text.strip().lower() in NO:
        return False
    raise ImproperlyConfigured(f"{name} must be on or off, not {text!r}.")


def choice(name: str, words: Sequence[str]) -> str:
    """One of the words; the first of them when the variable is not given."""
    text = os.environ.get(name, "").strip().lower()
    if text and text not in words:
        known = f"{', '.join(words[:-1])} or {words[-1]}"
        raise ImproperlyConfigured(f"{name} must be {known}, not {text!r}.")
    return text or words[0]


def number(name: str, text: str, convert: type) -> Any:
    """`text` as a number of that type; no NaN and no infinity."""
    try:
        value = convert(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        whole = "a whole number" if convert is int else "a number"
        raise ImproperlyConfigured(f"{name} must be {whole}, not {text!r}.")
    return value


def networks(name: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """A comma-separated list of networks, as in `10.0.0.0/8,fd00::/8`."""
    try:
        return [
            ipaddress.ip_network(part.strip())
            for part in os.environ.get(name, "").split(",")
            if part.strip()
        ]
    except ValueError as error:
        raise ImproperlyConfigured(
            f"{name} must be a list of networks, as in 10.0.0.0/8,fd00::/8: {error}."
        ) from error


def domains(name: str) -> frozenset[str]:
    """A comma-separated list of domains, in small letters and as DNS knows them (`xn--…`)."""
    parts = [part.strip() for part in os.environ.get(name, "").split(",")]
    return frozenset(_domain(name, part) for part in parts if part)


def _domain(name: str, text: str) -> str:
    try:
        found = idna.encode(text, uts46=True).decode()
    except idna.IDNAError:
        found = ""
    if not _DOMAIN.fullmatch(found):
        example = "as in example.org,example.net"
        raise ImproperlyConfigured(f"{name} must be a list of domains, {example}, not {text!r}.")
    return found
