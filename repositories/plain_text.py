"""Foreign text made fit to store and to show."""

import re

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# Escape sequences as terminals know them: CSI, OSC up to its end, and the two-byte ones.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
# C0 and C1 controls, and the marks that turn the direction of what follows them.
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def decoded(raw: bytes) -> str:
    """Bytes as text; what is not UTF-8 becomes the replacement character."""
    return raw.decode("utf-8", "replace")


def one_line(raw: bytes | str, *, limit: int = 255) -> str:
    """A name or a subject: controls become the replacement character; at most `limit` characters."""
    text = raw if isinstance(raw, str) else decoded(raw[: limit * 4])
    return shortened(_UNSEEN.sub(REPLACEMENT, text), limit)


def without_controls(raw: bytes | str, *, limit: int) -> str:
    """A message: line ends stay, escape sequences and all other controls go."""
    text = raw if isinstance(raw, str) else decoded(raw[: limit * 4])
    lines = re.split(r"[\r\n]+", _ESCAPES.sub("", text[: limit * 4]))
    return shortened("\n".join(_UNSEEN.sub("", line) for line in lines).strip(), limit)


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
