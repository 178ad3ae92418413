"""Bare repositories for tests, written by `git fast-import`; each builder returns the path."""

import os
import random
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

AUTHOR = b"Ada Lovelace <ada@example.org>"
ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
}
Files = Mapping[str | bytes, bytes]


def git(repository: Path, *command: str | bytes, stdin: bytes = b"") -> bytes:
    """Run git in the repository and return its output, without the last line end."""
    argv = ["git", "--git-dir", repository, *command]
    done = subprocess.run(argv, input=stdin, env=ENVIRONMENT, capture_output=True, check=True)
    return done.stdout.removesuffix(b"\n")


def empty(
    folder: Path, name: str = "empty", *, head: str = "main", object_format: str = "sha1"
) -> Path:
    """A repository without a commit."""
    path = folder / f"{name}.git"
    options = ["--template=", f"--initial-branch={head}", f"--object-format={object_format}"]
    argv = ["git", "init", "--quiet", "--bare", *options, path]
    subprocess.run(argv, env=ENVIRONMENT, check=True)
    return path


def written(path: Path, stream: Iterable[bytes]) -> Path:
    """Feed a fast-import stream to a repository that is there."""
    git(path, "fast-import", "--quiet", "--force", stdin=b"".join(stream))
    return path


def commit(
    branch: str | bytes = "main",
    files: Files | None = None,
    *,
    subject: bytes = b"Begin",
    author: bytes = AUTHOR,
    when: int = 1_700_000_000,
    links: Iterable[tuple[str, bytes]] = (),
    submodules: Iterable[tuple[str, str]] = (),
) -> Iterator[bytes]:
    """One parentless commit as a fast-import stream."""
    yield b"reset refs/heads/%s\n" % _bytes(branch)
    yield b"commit refs/heads/%s\n" % _bytes(branch)
    yield b"author %s %d +0000\ncommitter %s %d +0000\n" % (author, when, author, when)
    yield b"data %d\n%s\n" % (len(subject), subject)
    for name, content in ({"README.md": b"# Hello\n"} if files is None else files).items():
        yield b"M 100644 inline %s\n" % _quoted(name)
        yield b"data %d\n%s\n" % (len(content), content)
    for name, target in links:
        yield b"M 120000 inline %s\ndata %d\n%s\n" % (_quoted(name), len(target), target)
    for name, oid in submodules:
        yield b"M 160000 %s %s\n" % (oid.encode(), _quoted(name))
    yield b"\n"


def small(
    folder: Path, name: str = "small", *, branch: str = "main", files: Files | None = None
) -> Path:
    """One commit on one branch, and a tag."""
    path = written(empty(folder, name, head=branch), commit(branch, files))
    git(path, "tag", "v1", branch)
    return path


def branches(folder: Path, name: str, *names: str | bytes, head: str | None = None) -> Path:
    """One commit on each branch, the last one the newest; HEAD to `head` or to the first."""
    first = head or os.fsdecode(_bytes(names[0]))
    path = empty(folder, name, head=first)
    streams = (
        commit(branch, subject=b"On %d" % number, when=1_700_000_000 + number)
        for number, branch in enumerate(names)
    )
    return written(path, (part for stream in streams for part in stream))


def detached(folder: Path, name: str = "detached") -> Path:
    """Two branches, HEAD at the commit of the second one."""
    path = branches(folder, name, "alpha", "beta", "main")
    (path / "HEAD").write_bytes(git(path, "rev-parse", "refs/heads/beta") + b"\n")
    return path


def pull_requests(folder: Path, name: str = "pulls", *, count: int = 500) -> Path:
    """One branch and many `refs/pull/*`, as forges keep them."""
    path = small(folder, name)
    oid = git(path, "rev-parse", "refs/heads/main")
    lines = (b"create refs/pull/%d/head %s\n" % (number, oid) for number in range(count))
    git(path, "update-ref", "--stdin", stdin=b"".join(lines))
    return path


def large(folder: Path, name: str = "large", *, objects: int = 30_000) -> Path:
    """About so many objects, hardly compressible, so that every phase of a fetch takes a while."""
    path = empty(folder, name)
    chance = random.Random(7)

    def stream() -> Iterator[bytes]:
        files = objects - objects // 100 - 2
        yield from commit(files={})
        yield b"commit refs/heads/main\ncommitter %s 1700000001 +0000\n" % AUTHOR
        yield b"data 4\nMany\n"
        shared = chance.randbytes(400).hex().encode()
        for number in range(files):
            content = b"%d\n%s\n%s\n" % (number, shared, chance.randbytes(40).hex().encode())
            yield b"M 100644 inline %d/%d.txt\ndata %d\n" % (number % 100, number, len(content))
            yield content

    written(path, stream())
    git(path, "repack", "-adfq", "--depth=10", "--window=4")
    return path


def strange(folder: Path, name: str = "strange") -> Path:
    """Names that are no UTF-8, a symbolic link, a submodule, and text that looks like HTML."""
    files: Files = {
        b"caf\xe9.txt": b"Latin-1\n",
        "<script>alert(1)</script>.txt": b"x\n",
        "a\tb\nc.txt": b"control characters\n",
        "src/main.py": b"print('x')\n",
    }
    stream = commit(
        files=files,
        subject=b"Caf\xe9 <b>bold</b> \x1b[31mred",
        author=b"Ren\xe9e \xff <renee@example.org>",
        links=[("link", b"src/main.py"), ("evil", b"/etc/passwd")],
        submodules=[("vendor", "1" * 40)],
    )
    return written(empty(folder, name), stream)


def hostile_branches(folder: Path, name: str = "hostile") -> Path:
    """Branch names that a careless program takes for options, objects or HEAD."""
    names = [
        *("main", "HEAD", "--upload-pack=touch-x", "-x", "refs/pull/1", "a" * 40, "$(id)", "Main"),
        b"caf\xe9",
        "<img-src=x>",
    ]
    return branches(folder, name, *names)


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def _quoted(name: str | bytes) -> bytes:
    """A path as fast-import takes it, whatever bytes are in it."""
    return b'"%s"' % b"".join(b"\\%03o" % byte for byte in _bytes(name))
