"""The one place that builds a git command."""

import contextlib
import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from repositories.git_environment import certificates, environment, file_that_trusts
from repositories.processes import CHUNK, Finished, Process, Start, finish, start

SILENCE_SECONDS = 60
PAGE_SECONDS = 5.0
REFS_BYTES = 32 * 1024 * 1024
OID = frozenset("0123456789abcdef")

_KNOWN_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n"
_COMMIT_FORMAT = "%H%x00%T%x00%an%x00%ct%x00%s"


@dataclass(frozen=True)
class Source:
    """Where to fetch from, and what git is told for it alone.

    `pins` are curl's `host:port:address`, so that git connects to the addresses that were checked.
    """

    location: str
    local: bool = False
    pins: tuple[str, ...] = ()
    safe: tuple[Path, ...] = ()
    silence_seconds: int = SILENCE_SECONDS

    def environment(self, *, into: Path) -> dict[str, str]:
        if self.local:
            variables = environment(protocols="file", safe=(into, *self.safe))
            return variables | {"GIT_CONFIG_GLOBAL": str(_trust(into))}
        return environment(
            protocols="https:http",
            safe=(into,),
            config=[
                ("http.sslCAInfo", certificates()),
                # A busy server sends a sign of life each few seconds; one that is gone sends none.
                ("http.lowSpeedLimit", "1"),
                ("http.lowSpeedTime", str(self.silence_seconds)),
                *(("http.curloptResolve", pin) for pin in self.pins),
            ],
        )


@dataclass(frozen=True)
class Git:
    """The git commands for one bare repository of ours."""

    path: Path
    start: Start = start
    seconds: float | None = PAGE_SECONDS

    def init(self) -> Finished:
        """Make the directory and an empty repository in it."""
        argv = ["git", "init", "--quiet", "--bare", "--end-of-options", str(self.path)]
        return self._finish(argv, environment(safe=(self.path,)))

    @contextlib.contextmanager
    def trusting(self, source: Source) -> Iterator[None]:
        """Let git read a local source that another account owns, as long as this lasts.

        What serves a local source is a process that git starts without the configuration of our
        environment; only a file reaches it. The file lies in the new repository, which is ours alone.
        """
        file = _trust(self.path)
        if source.local:
            file.write_bytes(file_that_trusts(source.safe))
        try:
            yield
        finally:
            file.unlink(missing_ok=True)

    def remote_head(self, source: Source) -> Finished:
        """`ref: <name>\\tHEAD` and `<oid>\\tHEAD`; nothing when HEAD names no commit."""
        argv = ["ls-remote", "--symref", "--end-of-options", source.location, "HEAD"]
        return self._finish(self._argv(argv), source.environment(into=self.path))

    def fetch(self, source: Source) -> Process:
        """Start to fetch all branches and tags, and nothing else; progress is on standard error.

        Whoever asks for it reads that to its end and sees to it that the process is stopped.
        """
        argv = self._argv(
            [
                *("fetch", "--progress", "--no-tags", "--no-write-fetch-head", "--update-shallow"),
                *("--no-recurse-submodules", "--no-auto-maintenance", "--end-of-options"),
                *(source.location, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"),
            ]
        )
        return self.start(argv, env=source.environment(into=self.path), stderr=subprocess.PIPE)

    def set_head(self, branch: bytes) -> Finished:
        """Point HEAD to a full name such as `refs/heads/main`."""
        return self._run(["symbolic-ref", "HEAD", os.fsdecode(branch)])

    def refs(self, *folders: str) -> Finished:
        """A line `<oid> <full name>` for each reference below the folders."""
        line = "--format=%(objectname) %(refname)"
        return self._run(["for-each-ref", line, "--end-of-options", *folders])

    def newest_branch(self) -> Finished:
        """A line like those of `refs`, for the branch with the newest commit."""
        newest = ["--sort=-committerdate", "--count=1", "--format=%(objectname) %(refname)"]
        return self._run(["for-each-ref", *newest, "--end-of-options", "refs/heads"])

    def pack_refs(self) -> Finished:
        return self._run(["pack-refs", "--all"])

    def write_commit_graph(self) -> Finished:
        return self._run(["commit-graph", "write", "--reachable", "--changed-paths"])

    def last_commit(self) -> Finished:
        """Object name, tree, author, seconds and subject of HEAD's commit, NUL between them."""
        return self._run(["log", "-1", "--no-color", f"--format={_COMMIT_FORMAT}", "HEAD", "--"])

    def tree(self, oid: str, *, max_bytes: int) -> Finished:
        """`ls-tree -z -l` of one tree."""
        return self._run(["ls-tree", "-z", "-l", checked(oid)], max_bytes=max_bytes)

    def blobs(self, oids: Iterable[str], *, max_bytes: int) -> Finished:
        """`cat-file --batch` of some objects whose sizes are known to be small."""
        wanted = "".join(f"{checked(oid)}\n" for oid in oids).encode()
        return self._run(["cat-file", "--batch"], max_bytes=max_bytes, stdin=wanted)

    def write_known_config(self) -> None:
        (self.path / "config").write_text(_KNOWN_CONFIG)

    def _argv(self, command: Sequence[str]) -> list[str]:
        return ["git", f"--git-dir={self.path}", *command]

    def _run(
        self, command: Sequence[str], *, max_bytes: int = REFS_BYTES, stdin: bytes | None = None
    ) -> Finished:
        env = environment(safe=(self.path,))
        return self._finish(self._argv(command), env, max_bytes=max_bytes, stdin=stdin)

    def _finish(
        self,
        argv: Sequence[str],
        env: dict[str, str],
        *,
        max_bytes: int = REFS_BYTES,
        stdin: bytes | None = None,
    ) -> Finished:
        pipe = subprocess.PIPE
        fed = subprocess.DEVNULL if stdin is None else pipe
        process = self.start(argv, env=env, stdin=fed, stdout=pipe, stderr=pipe)
        return finish(process, max_bytes=max_bytes, seconds=self.seconds, stdin=stdin or b"")


def _trust(repository: Path) -> Path:
    return repository / "trusted-source"


def pin(host: str, port: int, addresses: Iterable[object]) -> str:
    """Curl's way to say that a host is at these addresses and nowhere else."""
    spelled = (f"[{address}]" if ":" in str(address) else str(address) for address in addresses)
    return f"{host}:{port}:{','.join(spelled)}"


def checked(oid: str) -> str:
    """An object name; raises ValueError for anything that git could take for something else."""
    if len(oid) not in (40, 64) or not set(oid) <= OID:
        raise ValueError("not an object name")
    return oid


def locate(path: Path, *, start: Start = start) -> tuple[Path, ...]:
    """The directories that make up the local repository at `path`; empty when there is none."""
    argv = ["git", "-C", str(path), "rev-parse", "--path-format=absolute"]
    env = environment(safe=(path, path / ".git"))
    env["GIT_CEILING_DIRECTORIES"] = str(path.parent)
    process = start(
        [*argv, "--git-dir", "--git-common-dir"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    done = finish(process, max_bytes=CHUNK, seconds=PAGE_SECONDS)
    found = {Path(os.fsdecode(line)) for line in done.stdout.splitlines()} if not done.code else ()
    return tuple(sorted({path, path / ".git", *found})) if found else ()
