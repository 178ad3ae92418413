"""Which language Forge speaks to a person: the one that they chose, or that their browser asked for."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils import translation


def choices() -> list[tuple[str, str]]:
    """Each language that Forge speaks, by its own name."""
    return list(settings.LANGUAGES)


def language_of(person: Any) -> str:
    """The person's language; the active one where it is not known, or for nobody."""
    known = getattr(person, "language", "")
    return str(known or translation.get_language() or settings.LANGUAGE_CODE)


def speak_to(person: Any) -> None:
    """Answer the request in the person's language from here on."""
    translation.activate(language_of(person))


def learn_language(*, user: Any, request: HttpRequest | None, **_more: Any) -> None:
    """Take the language of the first sign-in for the person's; they may choose another."""
    language = translation.get_language()
    if request is not None and not user.language and language in dict(choices()):
        type(user).objects.filter(pk=user.pk, language="").update(language=language)
