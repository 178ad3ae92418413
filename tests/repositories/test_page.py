"""The page of a repository: true, safe, and only for those who may see it."""

import shutil
import uuid

import pytest
from django.contrib.auth import get_user_model
from django.urls import reverse
from django.utils.html import escape

from repositories.browsing import Unreadable, overview
from repositories.importing import import_repository, publish, staging
from repositories.models import Repository, Visibility
from repositories.notices import Notice
from repositories.processes import start
from tests import gitrepos
from tests.repositories.importing import Reports


@pytest.fixture
def ada(db):
    return get_user_model().objects.create_user(email="ada@example.org", handle="Ada")


@pytest.fixture
def published(ada, settings, tmp_path):
    """A function that imports a local repository for Ada, as a job would."""
    settings.FORGE_DATA_DIR = tmp_path / "data"

    def publish_it(source, **fields) -> Repository:
        repository_id = uuid.uuid4()
        result = import_repository(
            str(source),
            local=True,
            into=staging(repository_id, uuid.uuid4()),
            start=start,
            report=Reports(),
        )
        publish(result.path, repository_id)
        names = ("default_branch", "head_oid", "branch_count", "tag_count", "size_bytes", "notice")
        facts = {name: getattr(result, name) for name in names}
        fields = {"slug": source.stem, "visibility": Visibility.PUBLIC} | facts | fields
        return Repository.objects.create(id=repository_id, owner=ada, **fields)

    return publish_it


def shown(client, repository: Repository) -> str:
    answer = client.get(repository.get_absolute_url())
    assert answer.status_code == 200
    return answer.content.decode()


def test_the_page_tells_what_is_in_the_repository(client, published, tmp_path, settings):
    settings.FORGE_URL = "https://forge.example.org"
    files = {
        "README.md": b"# Engine\n\nIt *computes*.\n",
        "src/main.py": b"print()\n",
        "a.txt": b"x" * 2048,
    }
    source = gitrepos.small(tmp_path, "engine", branch="trunk", files=files)

    page = shown(client, published(source, source_url="https://example.org/engine"))

    assert '<dd class="branch">trunk</dd>' in page
    assert "https://forge.example.org/Ada/engine.git" in page
    assert "https://example.org/engine" in page
    assert "<em>computes</em>" in page
    assert "2.0\N{NO-BREAK SPACE}KB" in page
    assert "Begin" in page
    assert "Ada Lovelace" in page
    assert "2023-11-14" in page
    assert gitrepos.git(source, "rev-parse", "--short=10", "trunk").decode() in page
    assert page.index("src/") < page.index("a.txt") < page.index("README.md")


def test_links_and_submodules_are_shown_as_what_they_are(client, published, tmp_path):
    page = shown(client, published(gitrepos.strange(tmp_path)))

    assert "→ src/main.py" in page
    assert "→ /etc/passwd" in page
    assert page.count("symbolic link") == 2
    assert "1111111111" in page
    assert "submodule" in page


def test_hostile_names_are_shown_as_text(client, published, tmp_path):
    page = shown(client, published(gitrepos.strange(tmp_path)))

    assert "<script>alert" not in page
    assert escape("<script>alert(1)</script>.txt").split("/")[0] in page
    assert "caf\N{REPLACEMENT CHARACTER}.txt" in page
    assert "Ren\N{REPLACEMENT CHARACTER}e" in page
    assert "\x1b" not in page
    assert "<b>bold</b>" not in page


def test_an_empty_repository_says_so(client, published, tmp_path):
    page = shown(client, published(gitrepos.empty(tmp_path)))

    assert "This repository is empty" in page


def test_a_repository_of_tags_only_does_not_say_that_it_is_empty(client, published, tmp_path):
    source = gitrepos.small(tmp_path)
    gitrepos.git(source, "update-ref", "-d", "refs/heads/main")

    assert "This repository has no branch" in shown(client, published(source))


def test_a_chosen_default_branch_is_said(client, published, tmp_path):
    source = gitrepos.branches(tmp_path, "lost", "dev", head="gone")

    page = shown(client, published(source))

    assert str(Notice.HEAD_NOWHERE.label) in page
    assert ">dev</dd>" in page


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("README", b"plain <b>text</b>", "<pre>plain &lt;b&gt;text&lt;/b&gt;</pre>"),
        ("readme.TXT", b"upper", "<pre>upper</pre>"),
        ("README.rst", b"Title\n=====", "<pre>Title\n=====</pre>"),
        ("README.md", b"\x00\x01", "This file holds no text."),
        ("README.md", b"", "This file holds no text."),
        ("README.md", b"*x*" * 40_000, "<pre>*x**x*"),
        ("README.md", b"x" * 300_000, "too long to be shown"),
    ],
)
def test_a_readme_is_shown_as_what_it_is(client, published, tmp_path, name, content, words):
    source = gitrepos.small(tmp_path, files={name: content})

    assert words in shown(client, published(source))


def test_a_directory_with_very_many_files_is_cut_and_says_so(client, published, tmp_path):
    files = {f"{number}.txt": b"" for number in range(1200)}

    page = shown(client, published(gitrepos.small(tmp_path, files=files)))

    assert page.count('<tr class="file">') == 1000
    assert "more files than can be listed" in page


def test_a_commit_without_files_and_with_an_absurd_date_is_shown(client, published, tmp_path):
    stream = gitrepos.commit(files={}, when=10**15)
    source = gitrepos.written(gitrepos.empty(tmp_path, "odd"), stream)

    assert "The last commit holds no files." in shown(client, published(source))


def test_missing_files_give_a_clear_page(client, published, tmp_path, caplog):
    repository = published(gitrepos.small(tmp_path))
    shutil.rmtree(repository.path)

    assert "cannot be read at the moment" in shown(client, repository)
    assert str(repository.id) in caplog.text


def test_damaged_files_give_a_clear_page(client, published, tmp_path):
    repository = published(gitrepos.small(tmp_path))
    for pack in repository.path.glob("objects/pack/*.pack"):
        pack.unlink()

    assert "cannot be read at the moment" in shown(client, repository)


def test_a_git_that_takes_too_long_is_given_up(published, tmp_path, monkeypatch):
    repository = published(gitrepos.small(tmp_path))
    (tmp_path / "git").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    with pytest.raises(Unreadable):
        overview(repository, seconds=0.2)


def test_a_machine_without_git_gives_a_clear_page(client, published, tmp_path, monkeypatch):
    repository = published(gitrepos.small(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))

    assert "cannot be read at the moment" in shown(client, repository)


def test_the_address_is_found_whatever_its_case_and_with_git_at_its_end(
    client, published, tmp_path
):
    published(gitrepos.small(tmp_path), slug="Engine")

    for address in ("/ada/engine", "/ADA/ENGINE", "/Ada/Engine.git"):
        answer = client.get(address)
        assert (answer.status_code, answer["Location"]) == (302, "/Ada/Engine")


def test_a_private_repository_is_for_its_owner_and_superusers(client, published, tmp_path, ada):
    repository = published(gitrepos.small(tmp_path), visibility=Visibility.PRIVATE)
    people = get_user_model().objects
    bob = people.create_user(email="bob@example.org", handle="bob")
    root = people.create_superuser(email="root@example.org", handle="root")
    address = repository.get_absolute_url()

    for person, status in ((bob, 404), (ada, 200), (root, 200)):
        client.force_login(person)
        assert client.get(address).status_code == status


def test_a_stranger_cannot_tell_a_private_repository_from_a_missing_one(
    client, published, tmp_path
):
    repository = published(gitrepos.small(tmp_path), visibility=Visibility.PRIVATE)

    for address in (repository.get_absolute_url(), "/Ada/missing", "/nobody/missing"):
        answer = client.get(address)
        assert (answer.status_code, answer["Location"]) == (
            302,
            f"{reverse('sign_in')}?next={address}",
        )


@pytest.mark.parametrize("address", ["/static/missing.css", "/favicon.ico/x", "/no_handle/x"])
def test_what_can_be_no_persons_address_is_not_found(client, db, address):
    assert client.get(address).status_code == 404


def test_a_repository_page_only_reads(client, published, tmp_path):
    repository = published(gitrepos.small(tmp_path))

    assert client.post(repository.get_absolute_url()).status_code == 405


def test_the_admin_shows_repositories_and_makes_none(client, published, tmp_path):
    repository = published(gitrepos.small(tmp_path))
    root = get_user_model().objects.create_superuser(email="root@example.org", handle="root")
    client.force_login(root)

    for page in ("changelist", "change"):
        arguments = [repository.pk] if page == "change" else []
        answer = client.get(reverse(f"admin:repositories_repository_{page}", args=arguments))
        assert answer.status_code == 200
        assert "small" in answer.content.decode()
    assert client.get(reverse("admin:repositories_repository_add")).status_code == 403
