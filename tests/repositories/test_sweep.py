"""What nobody will come for is removed from the disk, and nothing else."""

import json
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth import get_user_model
from django.db import connection

from repositories import storage
from repositories.models import Repository
from repositories.storage import DAY_SECONDS, sweep, sweep_orphans

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _own_data_directory(settings, tmp_path):
    settings.FORGE_DATA_DIR = tmp_path


def built() -> Path:
    path = storage.staging(uuid.uuid4(), uuid.uuid4())
    (path / "objects" / "pack").mkdir(parents=True)
    (path / "HEAD").write_text("ref: refs/heads/main\n")
    return path


def published(repository_id: uuid.UUID | None = None) -> Path:
    return storage.publish(built(), repository_id or uuid.uuid4())


def aged(path: Path, *, days: float = 2) -> Path:
    """The same path; all that is in it was last changed so long ago."""
    then = time.time() - days * DAY_SECONDS
    inside = () if path.is_symlink() else path.rglob("*")
    for each in (path, *inside):
        os.utime(each, (then, then), follow_symlinks=False)
    return path


def with_row(repository_id: uuid.UUID | None = None) -> Path:
    repository_id = repository_id or uuid.uuid4()
    owner, _new = get_user_model().objects.get_or_create(email="ada@example.org", handle="ada")
    Repository.objects.create(id=repository_id, owner=owner, slug=f"r{repository_id.hex[:8]}")
    return published(repository_id)


def at_the_second_query(act: Callable[[], object]):
    """Act when the sweep asks for a row again, just before it moves the directory."""
    seen = []

    def wrapper(execute, sql, params, many, context):
        if "repositories_repository" in sql and sql.startswith("SELECT"):
            seen.append(sql)
            if len(seen) == 2:
                act()
        return execute(sql, params, many, context)

    return connection.execute_wrapper(wrapper)


def test_an_old_repository_without_a_row_is_removed_and_one_with_a_row_stays():
    kept, orphan = aged(with_row()), aged(published())

    assert sweep_orphans() == {"removed": [orphan.name]}

    assert not orphan.exists()
    assert (kept / "HEAD").is_file()
    assert list((storage.root() / ".staging").iterdir()) == []


def test_what_is_younger_than_a_day_stays():
    aged(with_row())
    orphan, staged = aged(published(), days=0.9), aged(built(), days=0.9)

    assert sweep(DAY_SECONDS) == []
    assert orphan.exists()
    assert staged.exists()
    assert sweep(DAY_SECONDS, now=time.time() + DAY_SECONDS) == [
        f".staging/{staged.name}",
        orphan.name,
    ]


def test_an_import_that_still_receives_stays_however_long_ago_it_began():
    staged = aged(built())
    (staged / "objects" / "pack" / "tmp_pack_x").write_text("more")
    os.utime(staged, (0, 0))
    os.utime(staged / "objects" / "pack", (0, 0))

    assert sweep(DAY_SECONDS) == []
    assert staged.exists()


def test_old_staging_entries_are_removed_whatever_they_are(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    directory, file, link = (storage.staging(uuid.uuid4(), name) for name in ("a", "b", "c"))
    directory.mkdir()
    file.write_text("x")
    link.symlink_to(elsewhere)
    names = {f".staging/{aged(path).name}" for path in (directory, file, link)}

    assert set(sweep(DAY_SECONDS)) == names

    assert list((storage.root() / ".staging").iterdir()) == []
    assert elsewhere.is_dir()


def test_a_row_that_comes_while_the_sweep_looks_saves_its_repository():
    aged(with_row())
    repository_id = uuid.uuid4()
    orphan = aged(published(repository_id))
    owner = get_user_model().objects.get()

    def arrive():
        Repository.objects.create(id=repository_id, owner=owner, slug="late")

    with at_the_second_query(arrive):
        assert sweep(DAY_SECONDS) == []
    assert (orphan / "HEAD").is_file()


def test_a_repository_that_is_published_again_while_the_sweep_looks_stays():
    aged(with_row())
    repository_id = uuid.uuid4()
    orphan = aged(published(repository_id))

    # Its row is not committed yet, so that only the directory's age can tell.
    with at_the_second_query(lambda: storage.publish(Path("gone"), repository_id)):
        assert sweep(DAY_SECONDS) == []
    assert (orphan / "HEAD").is_file()


def test_a_repository_is_young_when_it_is_published_however_old_the_import_is():
    aged(with_row())
    repository_id = uuid.uuid4()
    orphan = storage.publish(aged(built()), repository_id)

    assert sweep(DAY_SECONDS) == []
    assert sweep(DAY_SECONDS, now=time.time() + 2 * DAY_SECONDS) == [orphan.name]


def test_the_repositories_of_another_database_are_not_taken_for_orphans(caplog):
    there = [aged(path) for path in (with_row(), published(), published())]
    staged = aged(built())

    assert sweep(DAY_SECONDS) == [f".staging/{staged.name}"]

    assert all(path.exists() for path in there)
    assert "2 repositories" in caplog.text


def test_only_directories_that_are_named_by_an_id_are_repositories():
    kept = [aged(with_row()) for _number in range(4)]
    names = ("notes.git", f"{uuid.uuid4().hex}.git", f"{uuid.uuid4()}".upper() + ".git", ".home")
    for name in names:
        (storage.root() / name).mkdir()
        aged(storage.root() / name)
    link = storage.place(uuid.uuid4())
    link.symlink_to(kept[0])
    aged(link)

    assert sweep(DAY_SECONDS) == []
    assert all((storage.root() / name).exists() for name in (*names, link.name))


def test_one_sweep_removes_no_more_than_its_share(monkeypatch):
    monkeypatch.setattr(storage, "MOST_SWEPT", 2)
    for _number in range(3):
        aged(with_row())
    orphans = {aged(published()).name for _number in range(3)}

    first, second, third = sweep(DAY_SECONDS), sweep(DAY_SECONDS), sweep(DAY_SECONDS)

    assert (len(first), len(second), third) == (2, 1, [])
    assert {*first, *second} == orphans


def test_its_word_can_be_kept_as_json():
    aged(built())

    (name,) = json.loads(json.dumps(sweep_orphans()))["removed"]

    assert name.startswith(".staging/")
