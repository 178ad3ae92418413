"""What a person should know about a repository that was imported well."""

from collections.abc import Iterable

from django.db.models import TextChoices
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _


class Notice(TextChoices):
    """Words kept in the database, several with spaces between; `sentences` says them."""

    HEAD_NOWHERE = (
        "head_nowhere",
        _("The source names no default branch that exists. Forge chose one."),
    )
    HEAD_DETACHED = (
        "head_detached",
        _("The source's HEAD is at a commit and on no branch. Forge chose a default branch."),
    )
    SHALLOW = "shallow", _("The source holds no older history, so it is missing here too.")


def joined(notices: Iterable[Notice]) -> str:
    return " ".join(notice.value for notice in notices)


def sentences(words: str) -> list[str | Promise]:
    """The sentences for the words that are known; the others are left out."""
    return [Notice(word).label for word in words.split() if word in Notice.values]
