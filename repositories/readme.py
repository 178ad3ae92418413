"""A README made fit to stand in a page: rendered where it is Markdown, always sanitised. Pure."""

import re
import threading
import time
from functools import lru_cache
from html import escape, unescape

import nh3
from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES
from pygments.util import ClassNotFound

from repositories.plain_text import decoded

MAX_README = 256 * 1024
# Some texts take a time that grows with the square of their length; this many bytes stay bearable.
MAX_MARKDOWN = 96 * 1024
# Lexers are worse, with regular expressions that nothing can interrupt: little code in each block,
# and no more blocks once a page has had its share of time.
MAX_HIGHLIGHTED = 2 * 1024
HIGHLIGHTING_SECONDS = 0.25
NAMES = ("readme.md", "readme.markdown", "readme", "readme.txt", "readme.rst", "readme.adoc")

_TAGS = set(
    """
    a abbr b blockquote br caption code dd del details div dl dt em h1 h2 h3 h4 h5 h6 hr i img ins
    kbd li ol p picture pre q s samp small span strong sub summary sup table tbody td tfoot th
    thead tr tt ul var
    """.split()
)
_ATTRIBUTES = {
    "a": {"href", "title"},
    "abbr": {"title"},
    "details": {"open"},
    "img": {"alt", "height", "src", "title", "width"},
    "ol": {"start"},
    "td": {"align", "colspan", "rowspan"},
    "th": {"align", "colspan", "rowspan", "scope"},
}
_ATTRIBUTES |= {tag: {"align"} for tag in ("div", "h1", "h2", "h3", "h4", "h5", "h6", "p")}
_CLASSES = {"span": {name for name in STANDARD_TYPES.values() if name}}
_ALIGNMENT = re.compile(r'(<t[dh]) style="text-align:(left|center|right)"')
_IMAGE = re.compile(r'<img((?: [a-z]+="[^"]*")*)>')
_ALTERNATIVE = re.compile(r' alt="([^"]*)"')
_INLINE_IMAGE = re.compile(r"data:image/(?:png|gif|jpeg|webp);base64,")


def is_markdown(name: str, data: bytes) -> bool:
    """Whether to render it; what is too long for that is shown as the text that it is."""
    return name.lower().endswith((".md", ".markdown")) and len(data) <= MAX_MARKDOWN


def plain(data: bytes) -> str | None:
    """The text of a README that is not Markdown; None when it is no text."""
    return None if b"\0" in data else decoded(data)


_one_at_a_time = threading.Lock()


def rendered(data: bytes) -> str:
    """Sanitised HTML of a Markdown file; one is rendered at a time, others wait for theirs.

    Whoever asks for the same again, or at the same moment, costs nothing.
    """
    with _one_at_a_time:
        return _rendered(data)


@lru_cache(maxsize=64)
def _rendered(data: bytes) -> str:
    """Sanitised HTML of a Markdown file.

    Links lead to other servers or to nothing, since a relative one has no page here yet. Images
    are only those that the file itself holds: the page's policy would block the others, so their
    alternative text stands in.
    """
    html = _markdown().render(decoded(data))
    clean = nh3.clean(
        _ALIGNMENT.sub(r'\1 align="\2"', html),
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        attribute_filter=_filtered,
        allowed_classes=_CLASSES,
        link_rel="nofollow noopener noreferrer",
        url_schemes={"data", "http", "https", "mailto"},
        url_relative="deny",
    )
    return _IMAGE.sub(_image_or_words, clean)


def _image_or_words(image: re.Match[str]) -> str:
    """The image where it has a source, else its alternative text."""
    if ' src="' in image[1]:
        return image[0]
    words = _ALTERNATIVE.search(image[1])
    # An attribute may hold a bare "<", which must not become a tag in the text.
    return escape(unescape(words[1])) if words else ""


def _filtered(tag: str, attribute: str, value: str) -> str | None:
    if (tag, attribute) == ("img", "src"):
        return value if _INLINE_IMAGE.match(value) else None
    if attribute == "href" and value.lower().lstrip().startswith("data:"):
        return None
    return value


def _markdown() -> MarkdownIt:
    highlight = Highlighter(HIGHLIGHTING_SECONDS)
    markdown = MarkdownIt("commonmark", {"html": True, "highlight": highlight})
    return markdown.enable(["table", "strikethrough"])


class Highlighter:
    """Highlights the code of one page until its time is spent; escapes the rest."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds

    def __call__(self, code: str, language: str, _attributes: str) -> str:
        if self._left <= 0:
            return escape(code)
        began = time.perf_counter()
        try:
            return _highlighted(code, language)
        finally:
            self._left -= time.perf_counter() - began


def _highlighted(code: str, language: str) -> str:
    """Code as spans with Pygments' class names; escaped only, where the language is unknown."""
    if not language or len(code) > MAX_HIGHLIGHTED:
        return escape(code)
    try:
        lexer = get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return escape(code)
    return highlight(code, lexer, HtmlFormatter(nowrap=True))
