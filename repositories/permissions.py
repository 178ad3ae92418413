"""What the account that Forge runs as may read of a Git repository on this machine.

Git is no help here: of what it may not read it says that it is damaged or not there, or it leaves
it out without a word.
"""

import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

# Git opens these by their names, so their directory need not be listed.
_NAMED = ("HEAD", "commondir", "config", "packed-refs")
_WHOLE = ("refs", "objects")


def account() -> str:
    """The name of the account that this process runs as; its number where it has no name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def unreadable(directories: Iterable[Path]) -> Path | None:
    """The first thing that git needs of a repository in these directories and may not read."""
    for directory in directories:
        if _is_closed(directory, os.X_OK):
            return directory
        if (directory / "HEAD").exists():
            for path in _needed(directory):
                if _is_closed(path, os.R_OK):
                    return path
    return None


def _needed(directory: Path) -> Iterator[Path]:
    yield from (directory / name for name in _NAMED)
    for whole in _WHOLE:
        yield directory / whole
        for folder, folders, files in os.walk(directory / whole):
            yield from (Path(folder, name) for name in folders)
            yield from (Path(folder, name) for name in files if not _is_half_written(name))


def _is_half_written(name: str) -> bool:
    return name.startswith("tmp_") or name.endswith(".lock")


def _is_closed(path: Path, wanted: int) -> bool:
    """Whether it is there and the account may not use it so; a directory must also be entered."""
    try:
        mode = path.stat().st_mode
    except PermissionError:
        return True
    except OSError:
        return False
    return not os.access(path, wanted | os.X_OK if stat.S_ISDIR(mode) else os.R_OK)
