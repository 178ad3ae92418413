"""One import from start to end: look, fetch, choose HEAD, prepare for reading, publish.

Nothing is visible before `publish`, and whatever is raised leaves neither process nor file.
"""

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from repositories import fetch_progress, preflight
from repositories.failures import ImportFailed, git_failure
from repositories.fetch_progress import FetchProgress, Step
from repositories.git import Git, Source, locate
from repositories.heads import BRANCHES, TAGS, Head, choose_branch, parse_head, parse_refs
from repositories.notices import Notice, joined
from repositories.plain_text import one_line
from repositories.preflight import USUAL_PATIENCE, Patience
from repositories.processes import Finished, Start, errors_of, stopped_at_exit
from repositories.sources import check_local, check_source
from repositories.storage import clear_leftovers, discard, publish, size_of, staging

__all__ = [
    "ImportFailed",
    "Imported",
    "Report",
    "clear_leftovers",
    "discard",
    "import_repository",
    "publish",
    "staging",
]

DEFAULT_BRANCH = b"refs/heads/main"
Refs = dict[bytes, bytes]

logger = logging.getLogger(__name__)


class Report(Protocol):
    """Takes word of how far the import is; whatever it raises stops the import."""

    def __call__(
        self,
        percent: int,
        *,
        step: str,
        done: int | None,
        total: int | None,
        received_bytes: int | None,
        bytes_per_second: int | None,
    ) -> None: ...


@dataclass(frozen=True)
class Imported:
    """A finished import that is not published yet.

    `notice` holds words of `Notice`; `head_oid` is empty for a repository without commits.
    """

    path: Path
    final_url: str
    default_branch: str
    head_oid: str
    branch_count: int
    tag_count: int
    size_bytes: int
    notice: str


def import_repository(
    source_url: str,
    *,
    local: bool,
    into: Path,
    start: Start,
    report: Report,
    max_bytes: int | None = None,
    patience: Patience = USUAL_PATIENCE,
) -> Imported:
    """Import all branches and tags into the directory `into`, which must not exist yet.

    Raises ImportFailed, or what `report` raised; then `into` is gone and no process is left.
    The git commands are started with `start`. `patience` bounds a silent server, not the whole.
    """
    work = _Import(Git(into, start=start, seconds=None), report, max_bytes)
    try:
        work.say(fetch_progress.CONNECTING.step())
        source = _local(source_url) if local else _remote(source_url, work, patience=patience)
        return work.run(source)
    except BaseException:
        discard(into)
        raise


def _local(path: str) -> Source:
    try:
        directory = check_local(path)
    except ValidationError as refused:
        code = "unreadable" if refused.code == "unreadable" else "not_git"
        raise _refused(refused, code=code) from refused
    return Source(str(directory), local=True, safe=locate(directory))


def _remote(url: str, work: "_Import", *, patience: Patience) -> Source:
    try:
        url = check_source(url)
    except ValidationError as refused:
        raise _refused(refused, code="address") from refused
    connecting = fetch_progress.CONNECTING.step()
    found = preflight.find(url, patience=patience, on_wait=lambda: work.say(connecting))
    work.say(fetch_progress.CONNECTING.step(done=1, total=2))
    silence = max(1, round(patience.silence))
    return Source(found.url, pins=found.pins, silence_seconds=silence)


def _refused(refused: ValidationError, *, code: str) -> ImportFailed:
    return ImportFailed(" ".join(refused.messages), permanent=True, code=code)


class _Import:
    """The steps of one import, once its source is known to be allowed."""

    def __init__(self, git: Git, report: Report, max_bytes: int | None) -> None:
        self._git = git
        self._report = report
        self._max_bytes = max_bytes
        self._received: int | None = None

    def run(self, source: Source) -> Imported:
        self._demand(self._git.init())
        with self._git.trusting(source):
            asked = parse_head(self._demand(self._git.remote_head(source)).stdout)
            self._fetch(source)
        self.say(fetch_progress.CHECKING.step())
        self._accept_files()
        self.say(fetch_progress.CHOOSING.step())
        refs = parse_refs(self._demand(self._git.refs("refs/heads", "refs/tags")).stdout)
        branch, notice = self._set_head(refs, asked)
        self.say(fetch_progress.INDEXING.step())
        self._prepare_for_reading()
        self.say(fetch_progress.MEASURING.step())
        return self._measured(source, refs, branch=branch, notice=notice)

    def say(self, step: Step) -> None:
        self._received = step.received_bytes or self._received
        self._report(
            step.percent,
            step=step.phrase,
            done=step.done,
            total=step.total,
            received_bytes=self._received,
            bytes_per_second=step.bytes_per_second,
        )

    def _fetch(self, source: Source) -> None:
        progress = FetchProgress()
        with stopped_at_exit(self._git.fetch(source)) as process:
            for data in errors_of(process):
                for step in progress.feed(data):
                    self.say(step)
                    self._refuse_more_than(step.received_bytes or 0)
            for step in progress.close():
                self.say(step)
            code = process.wait()
        if code:
            raise git_failure(
                code, own_lines=progress.own_lines, remote_lines=progress.remote_lines
            )

    def _refuse_more_than(self, size: int) -> None:
        if self._max_bytes is not None and size > self._max_bytes:
            raise ImportFailed(
                _("The repository is larger than this server allows."),
                permanent=True,
                code="too_big",
            )

    def _demand(self, done: Finished) -> Finished:
        """The outcome of a command that must succeed."""
        if done.truncated:
            reason = _("The repository has too many branches and tags.")
            raise ImportFailed(reason, permanent=True, code="too_many_refs")
        if done.code:
            raise git_failure(done.code, own_lines=done.stderr.splitlines())
        return done

    def _accept_files(self) -> None:
        """Leave only what git needs to read, and no word of anybody's configuration."""
        if (self._git.path / "objects" / "info" / "alternates").exists():
            reason = _("The repository borrows objects from another place on the disk.")
            raise ImportFailed(reason, permanent=True, code="alternates")
        shutil.rmtree(self._git.path / "hooks", ignore_errors=True)
        self._git.write_known_config()

    def _set_head(self, refs: Refs, asked: Head) -> tuple[bytes, Notice | None]:
        branches = {name: oid for name, oid in refs.items() if name.startswith(BRANCHES)}
        newest = parse_refs(self._demand(self._git.newest_branch()).stdout)
        branch, notice = choose_branch(branches, asked=asked, newest=next(iter(newest), b""))
        if branch:
            self._demand(self._git.set_head(branch))
        return branch or DEFAULT_BRANCH, notice

    def _prepare_for_reading(self) -> None:
        """Make later reads quick; a repository that git cannot index is still a good one."""
        for done in (self._git.pack_refs(), self._git.write_commit_graph()):
            if done.code < 0:
                raise git_failure(done.code, own_lines=done.stderr.splitlines())
            if done.code:
                logger.warning("%s: %s", self._git.path.name, one_line(done.stderr))

    def _measured(
        self, source: Source, refs: Refs, *, branch: bytes, notice: Notice | None
    ) -> Imported:
        size = size_of(self._git.path)
        self._refuse_more_than(size)
        shallow = Notice.SHALLOW if (self._git.path / "shallow").exists() else None
        return Imported(
            path=self._git.path,
            final_url=source.location,
            default_branch=one_line(branch.removeprefix(BRANCHES)),
            head_oid=refs.get(branch, b"").decode(),
            branch_count=sum(name.startswith(BRANCHES) for name in refs),
            tag_count=sum(name.startswith(TAGS) for name in refs),
            size_bytes=size,
            notice=joined(word for word in (notice, shallow) if word),
        )
