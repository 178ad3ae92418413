"""Where repositories lie, and that nothing half-done is ever in sight."""

import uuid

import pytest

from repositories import storage


@pytest.fixture(autouse=True)
def _own_data_directory(settings, tmp_path):
    settings.FORGE_DATA_DIR = tmp_path


def built(job_id: uuid.UUID, text: str = "new"):
    path = storage.staging(job_id, uuid.uuid4())
    path.mkdir()
    (path / "HEAD").write_text(text)
    return path


def test_publishing_moves_the_import_into_place():
    job_id = uuid.uuid4()
    path = built(job_id)

    place = storage.publish(path, job_id)

    assert place == storage.place(job_id)
    assert (place / "HEAD").read_text() == "new"
    assert not path.exists()


def test_publishing_again_is_fine():
    job_id = uuid.uuid4()
    path = built(job_id)

    assert storage.publish(path, job_id) == storage.publish(path, job_id)


def test_publishing_replaces_what_a_lost_commit_left():
    job_id = uuid.uuid4()
    storage.publish(built(job_id, "old"), job_id)

    place = storage.publish(built(job_id, "new"), job_id)

    assert (place / "HEAD").read_text() == "new"
    assert list((storage.root() / ".staging").iterdir()) == []


def test_publishing_nothing_is_an_error():
    with pytest.raises(FileNotFoundError):
        storage.publish(storage.staging(uuid.uuid4(), uuid.uuid4()), uuid.uuid4())


def test_leftovers_of_one_job_go_and_those_of_others_stay():
    mine, other = uuid.uuid4(), uuid.uuid4()
    left, kept, foreign = built(mine), built(mine), built(other)

    storage.clear_leftovers(mine, keep=kept)

    assert not left.exists()
    assert kept.exists()
    assert foreign.exists()


def test_discarding_what_is_gone_is_fine(tmp_path):
    storage.discard(tmp_path / "gone")
    storage.withdraw(uuid.uuid4())


def test_nobody_else_on_the_machine_can_read_repositories():
    assert storage.root().stat().st_mode & 0o077 == 0
