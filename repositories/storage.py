"""Where repositories lie on the disk: built aside, moved into place at once, addressed by id."""

import contextlib
import os
import shutil
import uuid
from pathlib import Path

from django.conf import settings


def root() -> Path:
    """The directory of all repositories; made when it is not there yet."""
    directory = Path(settings.FORGE_DATA_DIR) / "repositories"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory


def place(repository_id: uuid.UUID) -> Path:
    """Where the repository lies once it is published."""
    return Path(settings.FORGE_DATA_DIR) / "repositories" / f"{repository_id}.git"


def staging(job_id: uuid.UUID, claim: uuid.UUID | str) -> Path:
    """Where one attempt of a job builds; not there yet, and no other attempt has the same."""
    directory = root() / ".staging"
    directory.mkdir(mode=0o700, exist_ok=True)
    return directory / f"{job_id}.{claim}"


def clear_leftovers(job_id: uuid.UUID, *, keep: Path | None = None) -> None:
    """Remove what earlier attempts of the job left, for whatever reason they could not."""
    for path in (root() / ".staging").glob(f"{job_id}.*"):
        if path != keep:
            discard(path)


def discard(path: Path) -> None:
    """Remove a directory and all that is in it; it may be gone, or still be written to."""
    for _attempt in range(3):
        # A process that is just ending may add a file behind our back: then once more.
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return


def publish(imported: Path, repository_id: uuid.UUID) -> Path:
    """Move a finished import into place and return that place; safe to call again.

    It replaces what an attempt whose commit was lost has left there. So call it where the fence
    has let you pass: in the transaction that completes the job, after the job's own update.
    Raises FileNotFoundError when there is neither an import nor a published repository.
    """
    target = place(repository_id)
    if not imported.exists():
        if target.is_dir():
            return target
        raise FileNotFoundError(imported)
    if target.exists():
        withdraw(repository_id)
    os.rename(imported, target)
    _sync_directory(target.parent)
    return target


def withdraw(repository_id: uuid.UUID) -> None:
    """Take a repository off the disk: out of sight at once, then removed."""
    aside = staging(repository_id, f"withdrawn-{uuid.uuid4()}")
    with contextlib.suppress(FileNotFoundError):
        os.rename(place(repository_id), aside)
        discard(aside)


def size_of(path: Path) -> int:
    """Bytes of all files below the directory."""
    total = 0
    for folder, _folders, files in os.walk(path):
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def _sync_directory(path: Path) -> None:
    """Make a rename in the directory outlive a power cut."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
