"""A README is rendered, and can do nothing to the page that it stands in."""

import time
from html.parser import HTMLParser

import pytest
from django.conf import settings

from repositories.readme import plain, rendered
from tests import chromium


class Parts(HTMLParser):
    """What a browser would find: tags and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[str, str | None] = {}

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)
        self.attributes |= dict(attrs)


def test_markdown_is_rendered():
    html = rendered(
        b"# Title\n\nSome *text* with a [link](https://example.org/).\n\n- one\n- two\n"
    )

    assert "<h1>Title</h1>" in html
    assert "<em>text</em>" in html
    assert '<a href="https://example.org/" rel="nofollow noopener noreferrer">link</a>' in html
    assert html.count("<li>") == 2


def test_tables_keep_their_alignment_without_a_style():
    html = rendered(b"| a | b |\n|:--|--:|\n| 1 | 2 |\n")

    assert '<td align="right">2</td>' in html
    assert "style" not in html


def test_code_is_marked_with_classes_only():
    html = rendered(b"```python\nimport os\n```\n")

    assert '<span class="kn">import</span>' in html
    assert "style=" not in html


@pytest.mark.parametrize("language", [b"", b"no-such-language", b'"><script>'])
def test_code_of_an_unknown_language_is_escaped(language):
    html = rendered(b"```" + language + b"\n<script>alert(1)</script>\n```\n")

    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "<script" not in html


@pytest.mark.parametrize(
    "source",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt:alert(1))",
        "[x](data:text/html,<script>alert(1)</script>)",
        '<a href="data:text/html;base64,PHNjcmlwdD4=">x</a>',
        "<svg onload=alert(1)></svg>",
        "<iframe src=https://example.org></iframe>",
        "<style>body{display:none}</style>",
        '<p style="position:fixed">x</p>',
        "<form action=https://example.org><input name=password></form>",
        '<a href="vbscript:x">x</a>',
        "<base href=https://example.org/>",
        "<meta http-equiv=refresh content=0>",
        '<div class="message error" id="content">x</div>',
        "<div><!--</div><script>alert(1)</script>-->",
        "<math><mtext><script>alert(1)</script></mtext></math>",
        "<details ontoggle=alert(1) open>x</details>",
    ],
)
def test_what_could_act_in_the_page_is_taken_out(source):
    parts = Parts()
    parts.feed(rendered(source.encode()))

    assert set(parts.tags) <= {"a", "code", "details", "div", "img", "p"}
    assert set(parts.attributes) <= {"href", "rel", "open"}
    assert not [value for value in parts.attributes.values() if "script" in (value or "")]


def test_images_of_other_servers_are_not_asked_for_but_their_text_stands():
    html = rendered(b"![Build *status*](https://example.org/badge.svg) <img src=//x.org/y.png>!")

    assert html == "<p>Build status !</p>\n"


@pytest.mark.parametrize(
    "alternative", ["<script>alert(1)</script>", '&quot; src="data:image/png;base64,x', "a > b & c"]
)
def test_the_text_of_an_image_stays_text(alternative):
    parts = Parts()
    parts.feed(rendered(f"<p><img src=x alt='{alternative}'></p>".encode()))

    assert parts.tags == ["p"]


def test_an_image_in_the_file_itself_is_shown():
    html = rendered(
        b"<img alt=dot src='data:image/png;base64,AAAA'><img src='data:image/svg+xml,x'>"
    )

    assert 'src="data:image/png;base64,AAAA"' in html
    assert "svg" not in html


def test_links_that_lead_nowhere_here_are_text():
    assert "href" not in rendered(b"[docs](docs/index.md) [up](#top) [abs](/admin/) [net](//x.org)")


def test_bytes_that_are_no_utf8_are_replaced():
    assert "caf\N{REPLACEMENT CHARACTER}" in rendered(b"caf\xe9")
    assert plain(b"caf\xe9") == "caf\N{REPLACEMENT CHARACTER}"
    assert plain(b"\0") is None


def test_a_column_keeps_its_alignment_and_a_link_to_nowhere_looks_like_none():
    html = rendered(
        b"| a | b | c | d |\n|:--|:-:|--:|---|\n| 1 | 2 | 3 | 4 |\n\n"
        b"[there](https://example.org/) [nowhere](docs/)\n"
    )
    style = (settings.BASE_DIR / "static" / "forge.css").read_text()

    with chromium.launched() as browser:
        page = browser.new_page()
        page.set_content(f'<style>{style}</style><div class="readme">{html}</div>')
        aligned, links = page.evaluate(
            """() => {
              const all = (names) => [...document.querySelectorAll(names)].map((each) => getComputedStyle(each));
              const link = (style) => [style.textDecorationLine, style.color];
              return [all("th, td").map((cell) => cell.textAlign), all(".readme a").map(link)];
            }"""
        )
        ink = page.evaluate("getComputedStyle(document.querySelector('.readme')).color")

    assert aligned == ["left", "center", "right", "left"] * 2
    (there, nowhere) = links
    assert there[0] == "underline"
    assert there[1] != ink
    assert nowhere == ["none", ink]


@pytest.mark.parametrize(
    "block",
    [
        pytest.param("sas\n" + "\t" * 31_000, id="tabs"),
        pytest.param("raku\n" + '"\\' * 15_000, id="quotes"),
        pytest.param("js\n" + "\n".join(['"\\' * 900] * 30), id="lines"),
    ],
)
def test_code_that_lexers_choke_on_costs_little(block: str) -> None:
    data = "\n\n".join(f"```{block}\n```" for _ in range(3)).encode()
    began = time.process_time()
    assert "<pre><code" in rendered(data)
    assert time.process_time() - began < 3


def test_many_blocks_share_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repositories.readme.HIGHLIGHTING_SECONDS", 0.0)
    html = rendered(b"```python\nimport this\n```\n\nno time is left\n")
    assert "import this" in html
    assert "<span" not in html
