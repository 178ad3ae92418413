"""What may be imported: the rules for clone URLs and for local paths. No network."""

import ipaddress
import os
import re
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urlsplit

import idna
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from repositories.addresses import Address, is_allowed
from repositories.git import locate
from repositories.permissions import account, unreadable
from repositories.plain_text import one_line
from repositories.slugs import MAX_SLUG, is_slug

MAX_URL = 2048
_DEFAULT_PORTS = {"http": 80, "https": 443}
_SCP_LIKE = re.compile(r"[\w.-]+@(?P<host>[\w.-]+):(?P<path>[\w.~/-]+)", re.ASCII)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*", re.ASCII)
_UNWANTED = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029]|%(?:[01][0-9a-f]|7f|5c)", re.IGNORECASE)
_BAD_ESCAPE = re.compile(r"%(?![0-9a-f]{2})", re.IGNORECASE)
_DOT_SEGMENT = re.compile(r"/(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)


def check_source(text: str) -> str:
    """The clone URL in its one canonical spelling; raises ValidationError with a plain sentence.

    Nothing is looked up: an address written as a number is judged here, a name when it is resolved.
    No message repeats what was typed, which may hold a password; SSH's spelling has room for none.
    """
    text = text.strip()
    if len(text) > MAX_URL:
        raise _refused(_("This address is too long."), "too_long")
    if not text:
        raise _refused(_("Paste the address of a Git repository."), "required")
    if _UNWANTED.search(text):
        raise _refused(
            _("An address has no spaces, backslashes or control characters."), "characters"
        )
    parts = _split(text)
    _check_parts(parts, text)
    host = canonical_host(parts.hostname or "")
    url = f"{parts.scheme}://{host}{_port(parts)}{_path(parts.path)}"
    if len(url) > MAX_URL:
        raise _refused(_("This address is too long."), "too_long")
    return url


def _split(text: str) -> SplitResult:
    if not re.match(r"https?://", text, re.IGNORECASE):
        raise _refused(_other_scheme(text), "scheme")
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018  # reading it is what checks it
    except ValueError:
        raise _refused(_("This is not a valid address."), "invalid") from None
    return parts


def _other_scheme(text: str) -> str:
    """What to say of an address that is not http or https; helps with the SSH spelling."""
    ssh = _SCP_LIKE.fullmatch(text)
    if ssh:
        return _("SSH addresses cannot be imported. Try https://%(host)s/%(path)s instead.") % {
            "host": ssh["host"],
            "path": ssh["path"].lstrip("/"),
        }
    return _("The address must begin with https:// or http://.")


def _check_parts(parts: SplitResult, text: str) -> None:
    if "@" in parts.netloc:
        raise _refused(_("Leave the name and the password out of the address."), "credentials")
    if "?" in text or "#" in text:
        raise _refused(_("Leave out the part of the address that begins with “?” or “#”."), "query")
    if parts.netloc.endswith(":") or parts.port == 0:
        raise _refused(_("The port of this address is not valid."), "port")
    if parts.netloc.startswith("[") and ":" not in (parts.hostname or ""):
        raise _bad_host()
    if _BAD_ESCAPE.search(text) or _DOT_SEGMENT.search(parts.path):
        raise _refused(_("The path of this address is not valid."), "path")


def canonical_host(host: str) -> str:
    """The host as curl will take it: a DNS name, or an address in its one spelling.

    Every other way to write an address (`127.1`, `0x7f000001`, wide digits) is refused.
    """
    address = _literal(host)
    if address:
        check_address(address)
        return f"[{address}]" if address.version == 6 else str(address)
    name = host.removesuffix(".")
    try:
        name = name if name.isascii() else idna.encode(name).decode()
    except idna.IDNAError:
        raise _bad_host() from None
    labels = name.split(".")
    if len(name) > 253 or not all(map(_LABEL.fullmatch, labels)) or _NUMBER.fullmatch(labels[-1]):
        raise _bad_host()
    return name


def _literal(host: str) -> Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if "%" in host:
        raise _bad_host()
    return address


def check_address(address: Address) -> None:
    """Raise ValidationError for an address that imports may not connect to."""
    if not is_allowed(address):
        raise _refused(
            _("Forge does not import from this address. The administrator can allow its network."),
            "address",
        )


def _port(parts: SplitResult) -> str:
    return "" if parts.port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{parts.port}"


def _path(path: str) -> str:
    return quote(path, safe="/%:@!$&'()*+,;=-._~").rstrip("/")


def _bad_host() -> ValidationError:
    return _refused(_("The host of this address is not valid."), "host")


def _refused(sentence: str, code: str) -> ValidationError:
    return ValidationError(sentence, code=code)


def suggested_slug(location: str) -> str:
    """A name for the repository, made from a URL or a path; empty when it offers none."""
    try:
        segments = [part for part in unquote(urlsplit(location).path).split("/") if part]
    except ValueError:
        return ""
    while segments and segments[-1].lower() == ".git":
        segments.pop()
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", segments[-1] if segments else "")
    slug = slug.lstrip(".-")[:MAX_SLUG]
    while slug and (slug.endswith("-") or not is_slug(slug)):
        slug = re.sub(r"(?:\.git|\.lock|.)$", "", slug, count=1, flags=re.IGNORECASE)
    return slug


def check_local(path: str | Path) -> Path:
    """The absolute path of a Git repository that can be read; raises ValidationError."""
    if not str(path).strip():
        raise _refused(_("There is no such directory."), "missing")
    try:
        resolved = Path(path).expanduser().resolve(strict=True)
    except PermissionError:
        raise _unreadable(Path(path)) from None
    except (OSError, RuntimeError, ValueError):
        raise _refused(_("There is no such directory."), "missing") from None
    found = locate(resolved) if resolved.is_dir() else ()
    closed = unreadable(found or (resolved, resolved / ".git"))
    if closed:
        raise _unreadable(closed)
    if not found:
        raise _refused(_("This directory is not a Git repository."), "not_git")
    return resolved


def _unreadable(path: Path) -> ValidationError:
    sentence = _("The account “%(account)s”, which Forge runs as, may not read %(path)s.")
    words = {"account": account(), "path": one_line(os.fsencode(path))}
    return _refused(sentence % words, "unreadable")
