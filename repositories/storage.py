"""Where repositories lie on the disk: built aside, moved into place at once, addressed by id."""

import contextlib
import itertools
import logging
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from django.conf import settings

logger = logging.getLogger(__name__)

DAY_SECONDS = 24 * 60 * 60.0
MOST_SWEPT = 100
"""So many orphans go in one sweep; the next one takes the others."""
_IDS_IN_A_QUERY = 500


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
        # Its row is about to come: a sweep must not take it for something old.
        os.utime(target)
        return target
    os.utime(imported)
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


def sweep_orphans() -> dict[str, list[str]]:
    """Sweep what is older than a day; to be called by a schedule."""
    return {"removed": sweep(DAY_SECONDS)}


def sweep(older_than_seconds: float, *, now: float | None = None) -> list[str]:
    """Remove old leftovers of imports and old repositories without a row; returns their names.

    Old is that in which nothing was changed for so many seconds before `now` (seconds since 1970);
    what is younger stays, and at most `MOST_SWEPT` go. Repositories stay as well when fewer of
    them have a row than have none: then the database is more likely the wrong one.
    """
    before = (time.time() if now is None else now) - older_than_seconds
    removed = list(itertools.islice(_swept(before), MOST_SWEPT))
    if removed:
        logger.info("removed %d orphans: %s", len(removed), ", ".join(removed))
    return removed


def _swept(before: float) -> Iterator[str]:
    """Remove one orphan after the other, and say which."""
    for path in sorted(root().glob(".staging/*")):
        if not _changed_since(path, before) and _remove(path):
            yield f".staging/{path.name}"
    for repository_id in _orphans(before):
        if _withdraw_orphan(repository_id, before=before):
            yield place(repository_id).name


def _orphans(before: float) -> list[uuid.UUID]:
    """The old repositories without a row; none when those with a row are fewer."""
    there = sorted(_published())
    known = _with_row(there)
    orphans = [
        repository_id
        for repository_id in there
        if repository_id not in known and not _changed_since(place(repository_id), before)
    ]
    if len(orphans) > len(known):
        told = "%d repositories in %s have no row and %d have one: nothing is removed"
        logger.warning(told, len(orphans), root(), len(known))
        return []
    return orphans


def _published() -> Iterator[uuid.UUID]:
    """The id of each repository that is in its place, row or not."""
    for path in root().glob("*.git"):
        with contextlib.suppress(ValueError):
            repository_id = uuid.UUID(path.stem)
            if path == place(repository_id) and path.is_dir() and not path.is_symlink():
                yield repository_id


def _with_row(ids: Iterable[uuid.UUID]) -> set[uuid.UUID]:
    """Those of the ids that a row has."""
    from repositories.models import Repository

    found: set[uuid.UUID] = set()
    for some in itertools.batched(ids, _IDS_IN_A_QUERY):
        found.update(Repository.objects.filter(pk__in=some).values_list("pk", flat=True))
    return found


def _withdraw_orphan(repository_id: uuid.UUID, *, before: float) -> bool:
    """Remove the repository, unless it got a row meanwhile or is about to get one."""
    if _with_row([repository_id]):
        return False
    aside = staging(repository_id, f"withdrawn-{uuid.uuid4()}")
    try:
        os.rename(place(repository_id), aside)
    except FileNotFoundError:
        return False
    if _changed_since(aside, before):
        # It was published since we looked, and its row comes with the next commit.
        os.rename(aside, place(repository_id))
        return False
    discard(aside)
    return True


def _changed_since(path: Path, moment: float) -> bool:
    """Whether anything in it was changed at or after the moment, in seconds since 1970."""
    inside = (
        os.path.join(folder, name)
        for folder, folders, files in os.walk(path)
        for name in (*folders, *files)
    )
    return any(_changed_at(name) >= moment for name in itertools.chain([str(path)], inside))


def _changed_at(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except FileNotFoundError:
        return 0.0


def _remove(path: Path) -> bool:
    """Remove whatever it is; whether it is gone."""
    if path.is_dir() and not path.is_symlink():
        discard(path)
    else:
        path.unlink(missing_ok=True)
    return not os.path.lexists(path)


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
