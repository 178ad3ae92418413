"""What every page keeps to: the content policy, the contrast, and error pages that need nothing."""

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.template.loader import render_to_string

PLACES = (settings.BASE_DIR / "templates", settings.BASE_DIR / "jobs")
# Mails are no pages: no policy guards them, and their readers take styles from nowhere else.
TEMPLATES = sorted(
    path for place in PLACES for path in place.rglob("*.html") if path.parent.name != "mail"
)
STYLE = (settings.BASE_DIR / "static" / "forge.css").read_text()
INLINE = re.compile(
    r"<style|\sstyle=|\son\w+=|javascript:|<script(?![^>]*\bsrc=)|\shx-on|\shx-vals=['\"]js", re.I
)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_no_template_needs_more_than_the_content_policy_allows(template: Path) -> None:
    assert not INLINE.search(template.read_text())


@pytest.mark.parametrize("template", ["400.html", "500.html", "503.html"])
def test_a_page_for_the_worst_case_needs_no_request_and_no_database(template: str) -> None:
    page = render_to_string(template)

    assert page.count("<h1>") == 1
    assert "forge.css" in page


def colours(theme: str) -> dict[str, str]:
    """The stylesheet's colour tokens; the dark ones stand in blocks of their own."""
    dark = re.findall(r"prefers-color-scheme: dark\) \{\s*:root \{(.*?)\}", STYLE, re.S)
    light = re.findall(r"^:root \{(.*?)\}", STYLE, re.S | re.M)
    blocks = light + (dark if theme == "dark" else [])
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})", "".join(blocks)))


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    red, green, blue = (
        value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4
        for value in (int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4))
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


TEXT = [
    "ink/ground ink/surface muted/ground muted/surface muted/raised accent/ground accent/surface",
    "on-accent/accent on-accent/accent-deep accent/accent-soft muted/accent-soft good/good-soft",
    "bad/surface bad/bad-soft bad-deep/bad-soft wait/wait-soft ember/ground",
    "code-comment/raised code-keyword/raised code-name/raised code-type/raised code-string/raised",
    "code-number/raised",
]
SHAPES = ["line-strong/surface accent/line good/line bad/line muted/line"]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("pairs", "least"), [(TEXT, 4.5), (SHAPES, 3.0)], ids=["text", "shapes"])
def test_colours_stand_out_as_wcag_aa_asks(theme: str, pairs: list[str], least: float) -> None:
    token = colours(theme)

    weak = [
        pair
        for pair in " ".join(pairs).split()
        if contrast(token[pair.split("/")[0]], token[pair.split("/")[1]]) < least
    ]
    assert weak == []
