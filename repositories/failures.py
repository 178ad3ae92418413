"""Why an import failed, in plain words, and whether trying again can help."""

import re
from collections.abc import Iterable

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from repositories.plain_text import one_line, without_controls

MAX_REASON = 500
MAX_DETAIL = 2000


class ImportFailed(Exception):
    """The import cannot go on.

    `reason` is for people, safe to store and to show; `permanent` says that trying again cannot
    help; `code` is a stable word for counting; `detail` is what git and the server said, cleaned
    of controls and never to be trusted.
    """

    def __init__(
        self, reason: str | Promise, *, permanent: bool, code: str, detail: str | bytes = ""
    ) -> None:
        self.reason = one_line(str(reason), limit=MAX_REASON)
        self.permanent = permanent
        self.code = code
        self.detail = without_controls(detail, limit=MAX_DETAIL)
        super().__init__(self.reason)


# The first pattern found in git's own words decides: (pattern, code, permanent, reason).
_GIT_FAILURES: tuple[tuple[str, str, bool, Promise], ...] = (
    (
        r"No space left on device|Disk quota exceeded",
        "disk_full",
        False,
        _("The disk of this server is full."),
    ),
    (
        r"dubious ownership",
        "ownership",
        True,
        _("Git does not trust this directory, because another account owns it."),
    ),
    (
        r"fsck error|did not send all necessary objects|bad object|missing blob|missing tree",
        "broken",
        True,
        _("The repository holds objects that are damaged or forbidden."),
    ),
    (
        r"mismatched algorithms",
        "object_format",
        True,
        _("The repository names its objects by SHA-256, which Forge cannot import yet."),
    ),
    (
        r"certificate|SSL peer|self.signed",
        "certificate",
        True,
        _("The server's certificate is not trusted."),
    ),
    (
        r"Authentication failed|could not read (?:Username|Password)|returned error: 401",
        "unauthorized",
        True,
        _("The server asks for a name and a password: the repository is private, or not there."),
    ),
    (r"returned error: 403", "forbidden", True, _("The server refuses access to the repository.")),
    (
        r"repository '.*' not found|returned error: 404|returned error: 410",
        "not_found",
        True,
        _("There is no repository at this address."),
    ),
    (
        r"not valid: is this a git repository|does not appear to be a git repository",
        "not_git",
        True,
        _("There is no Git repository at this address."),
    ),
    (
        r"returned error: 3\d\d",
        "redirected",
        True,
        _("The server redirects to another address in the middle of the transfer."),
    ),
    (
        r"returned error: (?:5\d\d|429)",
        "server_error",
        False,
        _("The server has a problem of its own."),
    ),
    (
        r"too slow|timed out|Timeout was reached",
        "timeout",
        False,
        _("The server stopped answering."),
    ),
    (
        (
            r"early EOF|disconnect|hung up|RPC failed|transfer closed|connect|Could not resolve"
            r"|unexpected flush|bad line length|Empty reply"
        ),
        "connection_lost",
        False,
        _("The connection to the server was lost."),
    ),
)


def status_failure(status: int) -> ImportFailed:
    """What an HTTP status other than 200 means for an import."""
    number = f"returned error: {status}"
    for pattern, code, permanent, sentence in _GIT_FAILURES:
        if re.search(pattern, number):
            return ImportFailed(sentence, permanent=permanent, code=code, detail=f"HTTP {status}")
    reason = _("The server does not serve a Git repository at this address.")
    return ImportFailed(reason, permanent=True, code="not_git", detail=f"HTTP {status}")


def git_failure(
    exit_code: int, *, own_lines: Iterable[bytes], remote_lines: Iterable[bytes] = ()
) -> ImportFailed:
    """What a git that did not exit with 0 tells by its own words and its exit code."""
    own = b"\n".join(own_lines)
    detail = b"\n".join([*remote_lines, own])
    if exit_code < 0:
        reason = _("Git was stopped before it was done.")
        return ImportFailed(reason, permanent=False, code="stopped", detail=detail)
    # What the server calls an error is its own text, and no ground to judge on.
    judged = (line for line in own.split(b"\n") if b"remote error:" not in line)
    text = b"\n".join(judged).decode("utf-8", "replace")
    for pattern, code, permanent, sentence in _GIT_FAILURES:
        if re.search(pattern, text, re.IGNORECASE):
            return ImportFailed(sentence, permanent=permanent, code=code, detail=detail)
    reason = _("Git could not fetch the repository.")
    return ImportFailed(reason, permanent=False, code="git", detail=detail)
