"""Forge speaks French as completely as English, without a program that compiles it first."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings as configured
from django.test import Client
from django.utils import translation

from accounts.models import User
from jobs.engine.models import Schedule
from tests.catalogues import CATALOGUES, Entry, as_mo, marked, mo, po
from tests.jobs.conftest import browser, claimed, enqueued, person

HEADER = ("", "", "")
PLACEHOLDER = re.compile(r"%(?:\(\w+\))?[a-z%]|<[^>]+>")
PLAIN_SPACE_BEFORE = re.compile(r" [:;!?»%]|« ")
NO_SPACE_BEFORE = re.compile(r"[^\s:;!?][;!?»](?=\s|$)|\w:(?=\s|$)")

each_catalogue = pytest.mark.parametrize("name", CATALOGUES)


@pytest.fixture(autouse=True)
def _own_language() -> Iterator[None]:
    """What a page spoke in this thread does not outlive the test."""
    yield
    translation.deactivate()


def entries(name: str) -> dict[Any, Entry]:
    found = po(CATALOGUES[name][0])
    found.pop(HEADER)
    return found


def translations(name: str) -> Iterator[tuple[Entry, str]]:
    for entry in entries(name).values():
        for text in entry.translated.values():
            yield entry, text


def filled_in(text: str) -> list[str]:
    return sorted(PLACEHOLDER.findall(text))


@each_catalogue
def test_every_marked_string_is_in_its_catalogue_and_nothing_else_is(name: str) -> None:
    there, wanted = set(entries(name)), marked(name)
    assert len(wanted) > 90
    assert {"missing": wanted - there, "unused": there - wanted} == {
        "missing": set(),
        "unused": set(),
    }


@each_catalogue
def test_nothing_is_untranslated_or_only_guessed(name: str) -> None:
    for entry in entries(name).values():
        assert "fuzzy" not in entry.flags, entry.key
        assert len(entry.translated) == (3 if entry.plural else 1), entry.key
        assert all(text.strip() for text in entry.translated.values()), entry.key


@each_catalogue
def test_what_is_read_is_what_is_written(name: str) -> None:
    folder = CATALOGUES[name][0]
    assert mo(folder) == as_mo(po(folder)), "run `make messages`"


@each_catalogue
def test_a_translation_fills_in_what_its_original_does(name: str) -> None:
    for entry in entries(name).values():
        for number, text in entry.translated.items():
            original = entry.plural if number else entry.singular
            assert filled_in(text) == filled_in(original), text


@each_catalogue
def test_french_is_set_as_french_is_set(name: str) -> None:
    for entry, text in translations(name):
        assert "'" not in text, text
        # Addresses have colons of their own, and so has JSON.
        prose = re.sub(r"https?://\S*|\{.*\}", "", PLACEHOLDER.sub(_filled, text))
        assert not PLAIN_SPACE_BEFORE.search(prose), text
        assert not NO_SPACE_BEFORE.search(prose), text
        assert entry.singular.endswith(":") == text.endswith(":"), text


def _filled(placeholder: re.Match[str]) -> str:
    return "%" if placeholder[0] == "%%" else "x"


def test_both_catalogues_say_the_same_of_the_same() -> None:
    ours, engines = as_mo(entries("forge")), as_mo(entries("engine"))
    shared = set(ours) & set(engines)
    assert {name: ours[name] for name in shared} == {name: engines[name] for name in shared}


def test_a_language_is_offered_by_its_own_name() -> None:
    assert dict(configured.LANGUAGES) == {"en": "English", "fr": "Français"}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("asked", "language", "heading"),
    [
        ("", "en", "Sign in to Forge"),
        ("fr", "fr", "Se connecter à Forge"),
        ("fr-CA,fr;q=0.8,en;q=0.5", "fr", "Se connecter à Forge"),
        ("de,fr;q=0.5", "fr", "Se connecter à Forge"),
        ("de", "en", "Sign in to Forge"),
    ],
)
def test_a_stranger_is_answered_as_the_browser_asks(
    client: Client, asked: str, language: str, heading: str
) -> None:
    answer = client.get("/sign-in", headers={"Accept-Language": asked})
    assert answer["Content-Language"] == language
    assert f'<html lang="{language}">' in answer.content.decode()
    assert heading in answer.content.decode()


@pytest.mark.django_db
@pytest.mark.parametrize(("language", "told"), [("en", "37%"), ("fr", "37\xa0%")])
def test_a_percentage_stands_in_lists_and_titles_as_in_a_sentence(language: str, told: str) -> None:
    ada = speaking(language)
    job = claimed(enqueued(ada))
    job.report(progress_pct=37)
    listed, shown = (browser(ada).get(f"/{path}") for path in ("jobs", f"import/{job.pk}/progress"))
    assert f"<span>{told}</span>" in listed.content.decode()
    assert f'data-title="{told} · ada/' in shown.content.decode()


@pytest.mark.django_db
@pytest.mark.parametrize(("language", "monday"), [("en", "Mon"), ("fr", "lun")])
def test_the_next_runs_of_a_schedule_name_the_day_in_the_language_of_the_page(
    language: str, monday: str
) -> None:
    schedule = Schedule.objects.create(name="report", cron="30 4 * * 1", time_zone="Europe/Paris")
    page = browser(speaking(language)).get(f"/admin/jobs_engine/schedule/{schedule.pk}/change/")
    days = re.findall(r"(\S+) \d{4}-\d\d-\d\d 04:30 CES?T", page.content.decode())
    assert [day.rpartition(">")[2] for day in days] == [monday] * 5


def speaking(language: str) -> User:
    somebody = person("ada", is_staff=True, is_superuser=True)
    User.objects.filter(pk=somebody.pk).update(language=language)
    return somebody
