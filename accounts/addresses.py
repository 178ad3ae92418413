"""E-mail addresses whose domain has letters beyond ASCII can be spelled in two ways: both are one."""

import contextlib
import unicodedata

import idna
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.utils.translation import gettext_lazy as _

# RFC 5321, 4.5.3.1.1, in octets.
LONGEST_LOCAL_PART = 64
# The column's.
LONGEST = 254


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
    """Whether a mail server may take it: what a form's check of the letters leaves open."""
    local, _at, domain = address.rpartition("@")
    if '"' in local or "\\" in local:
        # One mailbox would have any number of spellings, each with limits of its own.
        return False
    if len(local.encode()) > LONGEST_LOCAL_PART or len(plain(address)) > LONGEST:
        return False
    try:
        return domain.startswith("[") or bool(idna.encode(domain, uts46=True))
    except idna.IDNAError:
        return False


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
