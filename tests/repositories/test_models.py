"""Rows of repositories: names, who may see them, and their files."""

import uuid
from pathlib import Path

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from repositories import storage
from repositories.models import Repository, Visibility
from repositories.notices import Notice, joined


@pytest.fixture
def ada(db):
    return get_user_model().objects.create_user(email="ada@example.org", handle="Ada")


@pytest.fixture
def bob(db):
    return get_user_model().objects.create_user(email="bob@example.org", handle="bob")


def repository(owner, slug: str = "engine", **fields) -> Repository:
    fields = {"id": uuid.uuid4(), "owner": owner, "slug": slug} | fields
    return Repository.objects.create(**fields)


def test_a_name_is_taken_once_per_owner_whatever_its_case(ada, bob):
    repository(ada, "Engine")
    repository(bob, "engine")

    with pytest.raises(IntegrityError), transaction.atomic():
        repository(ada, "engine")
    with pytest.raises(ValidationError, match="already has a repository of this name"):
        Repository(id=uuid.uuid4(), owner=ada, slug="ENGINE").full_clean()


def test_a_bad_name_is_refused_with_a_sentence(ada):
    with pytest.raises(ValidationError, match="Use at most 100 letters"):
        Repository(id=uuid.uuid4(), owner=ada, slug="a.git").full_clean()


def test_public_ones_are_for_all_and_private_ones_for_owner_and_superuser(ada, bob):
    public = repository(ada, "public", visibility=Visibility.PUBLIC)
    private = repository(ada, "private")
    root = get_user_model().objects.create_superuser(email="root@example.org", handle="root")

    def seen_by(visitor) -> set[Repository]:
        return set(Repository.objects.visible_to(visitor))

    assert seen_by(AnonymousUser()) == {public}
    assert seen_by(bob) == {public}
    assert seen_by(ada) == seen_by(root) == {public, private}


def test_it_is_found_by_its_address_whatever_the_case(ada):
    engine = repository(ada, "Engine")

    assert Repository.objects.named("aDA", "eNGINE").get() == engine
    assert not Repository.objects.named("ada", "engin_").exists()


def test_its_addresses_are_made_of_names_and_its_directory_of_its_id(ada, settings):
    settings.FORGE_URL = "https://forge.example.org"
    engine = repository(ada, "Engine")

    assert engine.get_absolute_url() == "/Ada/Engine"
    assert engine.clone_url == "https://forge.example.org/Ada/Engine.git"
    assert engine.path == Path(settings.FORGE_DATA_DIR) / "repositories" / f"{engine.id}.git"
    assert str(engine) == "Ada/Engine"


def test_a_path_on_this_machine_is_no_source_to_show(ada):
    assert repository(ada, "a", source_url="/srv/secret").public_source == ""
    assert repository(ada, "b", source_url="https://x.org/a").public_source == "https://x.org/a"


def test_notices_are_said_in_sentences(ada):
    words = joined([Notice.HEAD_NOWHERE, Notice.SHALLOW])

    assert len(repository(ada, notice=f"{words} unknown").notices) == 2


def test_a_row_knows_when_it_was_made(ada):
    assert repository(ada).created_at is not None


@pytest.mark.django_db(transaction=True)
def test_the_directory_goes_with_the_row(settings, tmp_path):
    settings.FORGE_DATA_DIR = tmp_path
    owner = get_user_model().objects.create_user(email="ada@example.org", handle="ada")
    path = repository(owner).path
    storage.root()
    path.mkdir()

    def delete_and_fail() -> None:
        with transaction.atomic():
            Repository.objects.all().delete()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        delete_and_fail()
    assert path.exists()

    Repository.objects.all().delete()
    assert not path.exists()
