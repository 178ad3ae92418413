"""Which branch is a repository's default. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from repositories.notices import Notice

USUAL_BRANCHES = (b"main", b"master", b"trunk", b"develop")
BRANCHES = b"refs/heads/"
TAGS = b"refs/tags/"


@dataclass(frozen=True)
class Head:
    """What a source says of its HEAD: a full branch name, an object name, both or neither."""

    branch: bytes = b""
    oid: bytes = b""


def parse_head(output: bytes) -> Head:
    """`git ls-remote --symref <source> HEAD`, of which only the lines of HEAD itself count."""
    head = Head()
    for line in output.splitlines():
        value, _tab, name = line.partition(b"\t")
        if name == b"HEAD" and value.startswith(b"ref: "):
            head = Head(value.removeprefix(b"ref: "), head.oid)
        elif name == b"HEAD":
            head = Head(head.branch, value)
    return head


def parse_refs(output: bytes) -> dict[bytes, bytes]:
    """Object names by full reference names, from lines `<oid> <name>`."""
    pairs = (line.partition(b" ") for line in output.split(b"\n") if line)
    return {name: oid for oid, _space, name in pairs}


def choose_branch(
    branches: Mapping[bytes, bytes], *, asked: Head, newest: bytes
) -> tuple[bytes, Notice | None]:
    """A full branch name for HEAD, and what to tell when it is not the one that was asked for.

    Without any branch it is the one asked for, or none: HEAD may wait for its first commit.
    """
    if asked.branch in branches:
        return asked.branch, None
    if not branches:
        return (asked.branch if asked.branch.startswith(BRANCHES) else b""), None
    notice = Notice.HEAD_DETACHED if asked.oid else Notice.HEAD_NOWHERE
    at_head = [name for name, oid in branches.items() if oid == asked.oid]
    candidates = at_head or list(branches)
    for usual in USUAL_BRANCHES:
        if BRANCHES + usual in candidates:
            return BRANCHES + usual, notice
    return (newest if newest in candidates else min(candidates)), notice
