"""What a repository's page shows, read from its files within bounds of size and time."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from repositories import readme
from repositories.git import PAGE_SECONDS, Git
from repositories.models import Repository
from repositories.plain_text import one_line
from repositories.processes import Finished, TimedOut

MAX_ENTRIES = 1000
MAX_TREE = 4 * 1024 * 1024
MAX_TARGET = 1024
MAX_LINKS = 100
SHORT_OID = 10

logger = logging.getLogger(__name__)


class Unreadable(Exception):
    """The repository's files cannot be read now; the message is for the log."""


@dataclass(frozen=True)
class Commit:
    """`date` is None where the commit's own is beyond what a calendar holds."""

    oid: str
    tree: str
    author: str
    subject: str
    date: datetime | None

    @property
    def short_oid(self) -> str:
        return self.oid[:SHORT_OID]


@dataclass(frozen=True)
class Entry:
    """A line of a tree. `kind` is directory, file, executable, symlink or submodule."""

    kind: str
    name: str
    oid: str
    size: int | None
    target: str = ""

    @property
    def short_oid(self) -> str:
        return self.oid[:SHORT_OID]


@dataclass(frozen=True)
class Readme:
    """`html` of a Markdown file, else `text`; neither when it is no text or too long to show."""

    name: str
    html: str = ""
    text: str = ""
    too_long: bool = False


@dataclass(frozen=True)
class Overview:
    """The newest state of the default branch; without a commit the repository has none."""

    commit: Commit | None = None
    entries: list[Entry] = field(default_factory=list)
    hidden_entries: bool = False
    readme: Readme | None = None


def overview(repository: Repository, *, seconds: float = PAGE_SECONDS) -> Overview:
    """Read what the page shows, with so many seconds for each command; raises Unreadable."""
    if not (repository.path / "HEAD").is_file():
        raise Unreadable(f"{repository.path} is missing")
    git = Git(repository.path, seconds=seconds)
    try:
        if not repository.head_oid:
            return Overview()
        commit = parse_commit(_demand(git.last_commit()).stdout)
        listing = git.tree(commit.tree, max_bytes=MAX_TREE)
        if not listing.truncated:
            _demand(listing)
        return _overview(git, commit, listing)
    except (OSError, TimedOut, ValueError) as error:
        raise Unreadable(f"{repository.path}: {error}") from error


def _overview(git: Git, commit: Commit, listing: Finished) -> Overview:
    found = list(parse_tree(listing.stdout))
    entries = in_order(found)[:MAX_ENTRIES]
    chosen = readme_of(found)
    links = [entry for entry in entries if entry.kind == "symlink" and _fits(entry, MAX_TARGET)]
    wanted = links[:MAX_LINKS]
    if chosen and _fits(chosen, readme.MAX_README):
        wanted = [*wanted, chosen]
    contents = _contents(git, wanted)
    return Overview(
        commit=commit,
        entries=[_with_target(entry, contents) for entry in entries],
        hidden_entries=listing.truncated or len(found) > len(entries),
        readme=_readme(chosen, contents) if chosen else None,
    )


def _fits(entry: Entry, size: int) -> bool:
    return entry.size is not None and entry.size <= size


def _contents(git: Git, entries: Sequence[Entry]) -> dict[str, bytes]:
    """The blobs of some entries by object name."""
    if not entries:
        return {}
    oids = sorted({entry.oid for entry in entries})
    # Each blob comes with a line of its own before it and a line end behind it.
    most = sum((entry.size or 0) + 128 for entry in entries)
    return dict(parse_blobs(_demand(git.blobs(oids, max_bytes=most)).stdout))


def _with_target(entry: Entry, contents: dict[str, bytes]) -> Entry:
    if entry.kind != "symlink" or entry.oid not in contents:
        return entry
    target = one_line(contents[entry.oid])
    return Entry(entry.kind, entry.name, entry.oid, entry.size, target)


def _readme(entry: Entry, contents: dict[str, bytes]) -> Readme:
    data = contents.get(entry.oid)
    if data is None:
        return Readme(entry.name, too_long=True)
    text = readme.plain(data)
    if text is not None and readme.is_markdown(entry.name, data):
        return Readme(entry.name, html=readme.rendered(data))
    return Readme(entry.name, text=text or "")


def _demand(done: Finished) -> Finished:
    if done.code or done.truncated:
        raise Unreadable(f"git ended with {done.code}: {one_line(done.stderr)}")
    return done


def parse_commit(output: bytes) -> Commit:
    """The line that `Git.last_commit` gives; raises ValueError."""
    oid, tree, author, seconds, subject = output.rstrip(b"\n").split(b"\0", 4)
    try:
        date = datetime.fromtimestamp(int(seconds), UTC)
    except (ValueError, OverflowError, OSError):
        date = None
    return Commit(oid.decode(), tree.decode(), one_line(author), one_line(subject), date)


def parse_tree(output: bytes) -> Iterator[Entry]:
    """Entries of `ls-tree -z -l`; a last one that was cut off is left out."""
    *records, _rest = output.split(b"\0")
    for record in records:
        facts, _tab, name = record.partition(b"\t")
        mode, _type, oid, size = facts.split()
        number = int(size) if size.isdigit() else None
        yield Entry(_kind(mode), one_line(name), oid.decode(), number)


def _kind(mode: bytes) -> str:
    special = {b"040000": "directory", b"120000": "symlink", b"160000": "submodule"}
    return special.get(mode, "executable" if mode == b"100755" else "file")


def in_order(entries: Sequence[Entry]) -> list[Entry]:
    """Directories first, submodules among them, then the rest, each by name."""
    folders = ("directory", "submodule")
    return sorted(entries, key=lambda entry: (entry.kind not in folders, entry.name.casefold()))


def readme_of(entries: Sequence[Entry]) -> Entry | None:
    """The file to show below the tree: Markdown before text, whatever the case of its name."""
    files = [entry for entry in entries if entry.kind in ("file", "executable")]
    named = {entry.name.lower(): entry for entry in reversed(files)}
    return next((named[name] for name in readme.NAMES if name in named), None)


def parse_blobs(output: bytes) -> Iterator[tuple[str, bytes]]:
    """Object names and contents of `cat-file --batch`; missing objects are left out."""
    position = 0
    while position < len(output):
        end = output.index(b"\n", position)
        oid, *facts = output[position:end].split(b" ")
        position = end + 1
        if len(facts) == 2:
            size = int(facts[1])
            yield oid.decode(), output[position : position + size]
            position += size + 1
