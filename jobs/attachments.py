"""Files of queued mails: written before the row, in FORGE_DATA_DIR/mail/<id of the job>/."""

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings

BEFORE_HTML, AFTER_HTML = "before", "after"


@dataclass(frozen=True, slots=True)
class Attachment:
    """What is attached: a file, or (`part`) a whole MIME part with headers of its own.

    With `alternative` it is no file but another version of the body, which stands BEFORE_HTML or
    AFTER_HTML.
    """

    name: str
    mimetype: str
    content: bytes
    part: bool = False
    alternative: str = ""


def root() -> Path:
    """The directory of all attachments; it need not be there."""
    return Path(settings.FORGE_DATA_DIR) / "mail"


def place(job_id: uuid.UUID) -> Path:
    return root() / str(job_id)


def write(job_id: uuid.UUID, attachments: Iterable[Attachment]) -> list[dict[str, Any]]:
    """Write the files and return what the row is to remember of them; raises OSError."""
    remembered: list[dict[str, Any]] = []
    try:
        for attachment in attachments:
            _write_one(place(job_id), str(len(remembered)), attachment.content)
            remembered.append(
                {
                    "name": attachment.name,
                    "mimetype": attachment.mimetype,
                    "size": len(attachment.content),
                    "part": attachment.part,
                    "alternative": attachment.alternative,
                }
            )
        if remembered:
            _sync(place(job_id))
    except BaseException:
        delete(job_id)
        raise
    return remembered


def read(job_id: uuid.UUID, remembered: Iterable[dict[str, Any]]) -> Iterator[Attachment]:
    """The attachments again, in their order; raises FileNotFoundError for one that is gone."""
    for number, entry in enumerate(remembered):
        content = (place(job_id) / str(number)).read_bytes()
        # Rows of an older Forge know no alternatives.
        alternative = entry.get("alternative", "")
        yield Attachment(entry["name"], entry["mimetype"], content, entry["part"], alternative)


def delete(job_id: uuid.UUID) -> None:
    """Delete the files of a job; there may be none."""
    shutil.rmtree(place(job_id), ignore_errors=True)


def _write_one(directory: Path, name: str, content: bytes) -> None:
    root().mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    handle = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "wb") as file:
        file.write(content)
        # The row outlives a power cut, so its files must too.
        file.flush()
        os.fsync(handle)


def _sync(directory: Path) -> None:
    for path in (directory, directory.parent):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
