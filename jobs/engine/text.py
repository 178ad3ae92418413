"""What of a foreign text may be stored: no NUL, no controls, no lone surrogates, not too much."""

import re
import traceback

MESSAGE_CHARACTERS = 2_000
TRACEBACK_BYTES = 16 * 1024

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def clean(text: str, *, limit: int = MESSAGE_CHARACTERS) -> str:
    """Text that both databases take and a page may show; at most `limit` characters."""
    # What is far beyond the limit is cut before the patterns see it.
    text = text[: limit * 4].encode("utf-8", "replace").decode("utf-8")
    text = _CONTROLS.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n")))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def clean_traceback(error: BaseException) -> str:
    """The traceback, its end kept, at most 16 KiB of UTF-8."""
    try:
        text = "".join(traceback.format_exception(error))
    except BaseException:
        # An exception whose own __str__ fails, by whatever, must still be recorded.
        text = f"{type(error).__name__} (its traceback cannot be shown)"
    data = clean(text[-TRACEBACK_BYTES:], limit=TRACEBACK_BYTES).encode()[-TRACEBACK_BYTES:]
    return data.decode("utf-8", "ignore")


def words_of(error: BaseException) -> str:
    """The exception's own message, cleaned; its class name where it says nothing."""
    try:
        message = clean(str(error))
    except BaseException:
        message = ""
    return message.strip() or type(error).__name__
