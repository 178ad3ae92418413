"""E-mail addresses whose domain has letters beyond ASCII can be spelled in two ways: both are one."""

import contextlib
import re
import unicodedata

import idna
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.utils.translation import gettext_lazy as _

# RFC 5321, 4.5.3.1.1, in octets.
LONGEST_LOCAL_PART = 64
# The column's.
LONGEST = 254
_LABEL = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)", re.IGNORECASE)


def plain(address: str) -> str:
    """The address with its domain as DNS knows it: in ASCII and in small letters."""
    # As the person is looked up: letters that look alike are one.
    local, at, domain = unicodedata.normalize("NFKC", address.strip()).rpartition("@")
    with contextlib.suppress(idna.IDNAError):
        domain = idna.encode(domain, uts46=True).decode()
    return f"{local}{at}{domain.lower()}"


def domain_of(address: str) -> str:
    """The domain as DNS knows it."""
    return plain(address).rpartition("@")[2]


def spellings(address: str) -> list[str]:
    """The address as it was given, then with its domain in ASCII, then with it in letters."""
    ascii_only = plain(address)
    local, at, domain = ascii_only.rpartition("@")
    with contextlib.suppress(idna.IDNAError):
        domain = idna.decode(domain)
    return list(dict.fromkeys([address, ascii_only, f"{local}{at}{domain}"]))


def is_deliverable(address: str) -> bool:
    """Whether a mail may go to it: what a form's check of the letters leaves open."""
    local = address.rpartition("@")[0]
    # Some letters beyond ASCII are small or capital ones of letters within.
    if not local.isascii() or _has_other_spellings(local):
        return False
    if len(local) > LONGEST_LOCAL_PART or len(plain(address)) > LONGEST:
        return False
    return _is_domain(domain_of(address))


def _has_other_spellings(local: str) -> bool:
    """Whether one mailbox would have any number of spellings, each with limits of its own.

    In quotes, or as an encoded word, which in a mail's header is read as what it stands for.
    """
    return '"' in local or "\\" in local or local.startswith("=?")


def _is_domain(domain: str) -> bool:
    """Whether DNS could know it, which it does no IP address in brackets."""
    try:
        ascii_form = domain if domain.isascii() else idna.encode(domain, uts46=True).decode()
    except idna.IDNAError:
        return False
    return all(_LABEL.fullmatch(label) for label in ascii_form.split("."))


def validate_deliverable(address: str) -> None:
    """Refuse what no mail server takes.

    What is no address at all, or longer than the column, a field refuses in words of its own.
    """
    try:
        validate_email(address)
    except ValidationError:
        return
    if len(address) <= LONGEST and not is_deliverable(address):
        raise ValidationError(_("No mail server takes this address."), code="undeliverable")
