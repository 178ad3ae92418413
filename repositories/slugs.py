"""Names of repositories, as they stand in addresses. Pure."""

import re

from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

MAX_SLUG = 100
_SLUG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*", re.ASCII)
# Endings that would make an address mean something else, or that git keeps for itself.
_ENDINGS = (".git", ".lock", ".")


def is_slug(text: str) -> bool:
    """Letters, digits, `.`, `_` and `-`; no leading `.` or `-`; no ending that git knows."""
    fits = len(text) <= MAX_SLUG and _SLUG.fullmatch(text)
    return bool(fits) and not text.lower().endswith(_ENDINGS)


def validate_slug(text: str) -> None:
    if not is_slug(text):
        raise ValidationError(
            _(
                "Use at most 100 letters, digits, dots, hyphens or underscores, with no dot or"
                " hyphen first, and no “.git”, “.lock” or dot at the end."
            ),
            code="invalid",
        )
