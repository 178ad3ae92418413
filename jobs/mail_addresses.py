"""Addresses of mail: one mailbox each, written as RFC 5322 says and carried as RFC 5321 says. Pure."""

import re
from collections.abc import Iterable
from email.headerregistry import Address, AddressHeader
from typing import Any

import idna

MOST_RECIPIENTS = 50
"""Of one mail: so many does Postmark take."""
LONGEST_LOCAL_PART = 64
LONGEST_ADDRESS = 254
_LABEL = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)", re.IGNORECASE)


def normal(text: str) -> str:
    """The address with its display name quoted as need be and its domain in ASCII.

    Raises ValueError, which names the address, for what no server would take: it is not one
    mailbox, has no domain, is too long, holds a line break, or needs more than ASCII before the @.
    """
    try:
        return str(_address(text))
    except ValueError as error:
        raise _none(text, str(error)) from None
    except Exception:
        # The parser of the standard library ends in all sorts of them.
        raise _none(text, "it cannot be read") from None


def _none(text: str, why: str) -> ValueError:
    return ValueError(f"{text!r:.200} is no e-mail address: {why}.")


def normal_all(texts: Iterable[object]) -> list[str]:
    """All of them normal, in their order; lazy translations are text too."""
    return [normal(str(text)) for text in texts]


def bare(address: str) -> str:
    """The address without its display name."""
    return str(_mailbox(address).addr_spec)


def _address(text: str) -> Address:
    if "\r" in text or "\n" in text:
        raise ValueError("it holds a line break")
    mailbox = _mailbox(text)
    local, domain = mailbox.local_part or "", mailbox.domain or ""
    if not domain:
        raise ValueError("it has no domain")
    if not local:
        raise ValueError("nothing stands before the @")
    if not local.isascii():
        raise ValueError("only ASCII may stand before the @")
    if len(local) > LONGEST_LOCAL_PART:
        raise ValueError(f"more than {LONGEST_LOCAL_PART} characters stand before the @")
    address = Address(mailbox.display_name or "", local, ascii_domain(domain))
    if len(address.addr_spec) > LONGEST_ADDRESS:
        raise ValueError(f"it is longer than {LONGEST_ADDRESS} characters")
    return address


def _mailbox(text: str) -> Any:
    parsed = AddressHeader.value_parser(text)
    defects = [str(defect).rstrip(")") for defect in parsed.all_defects]
    # These two have better words of their own.
    told = ("addr-spec local part with no domain", "local-part contains non-ASCII characters")
    worse = [defect for defect in defects if defect not in told]
    mailboxes = parsed.all_mailboxes
    if len(mailboxes) > 1:
        raise ValueError("it is more than one; a name with a comma needs quotes")
    if worse:
        raise ValueError(worse[0])
    if not mailboxes:
        raise ValueError("it is empty or a group")
    return mailboxes[0]


def ascii_domain(domain: str) -> str:
    """The domain as the DNS knows it (IDNA 2008); raises ValueError."""
    try:
        ascii_form = domain if domain.isascii() else idna.encode(domain, uts46=True).decode()
    except idna.IDNAError as error:
        raise ValueError(f"its domain is none: {error}") from None
    labels = ascii_form.removesuffix(".").split(".")
    if not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("its domain is none")
    return ascii_form
