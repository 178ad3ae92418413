"""Words of the environment are read strictly."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from forge.variables import choice, domains, switch


@pytest.mark.parametrize(
    ("text", "on"), [("on", True), ("True", True), ("1", True), ("OFF", False), ("", False)]
)
def test_a_switch_is_on_or_off(monkeypatch: pytest.MonkeyPatch, text: str, on: bool) -> None:
    monkeypatch.setenv("SWITCH", text)

    assert switch("SWITCH") is on


def test_what_is_not_given_is_off_or_the_first_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOWHERE", raising=False)

    assert switch("NOWHERE") is False
    assert choice("NOWHERE", ["closed", "open"]) == "closed"
    assert domains("NOWHERE") == frozenset()


@pytest.mark.parametrize("text", ["maybe", "2", "tru"])
def test_a_switch_is_nothing_else(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SWITCH", text)

    with pytest.raises(ImproperlyConfigured, match=f"SWITCH must be on or off, not '{text}'"):
        switch("SWITCH")


def test_a_choice_is_one_of_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHOICE", " Open ")
    assert choice("CHOICE", ["closed", "open", "domains"]) == "open"

    monkeypatch.setenv("CHOICE", "ajar")
    with pytest.raises(ImproperlyConfigured, match="must be closed, open or domains, not 'ajar'"):
        choice("CHOICE", ["closed", "open", "domains"])


def test_domains_are_kept_as_dns_knows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOMAINS", "Example.ORG, bücher.example,, localhost")

    assert domains("DOMAINS") == {"example.org", "xn--bcher-kva.example", "localhost"}


@pytest.mark.parametrize(
    "text", ["ada@example.org", "*.example.org", ".example.org", "a b", "https://example.org", "-a"]
)
def test_a_domain_is_nothing_else(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("DOMAINS", f"example.org,{text}")

    with pytest.raises(ImproperlyConfigured, match="DOMAINS must be a list of domains"):
        domains("DOMAINS")
