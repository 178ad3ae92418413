"""Imports from a real server, good and bad."""

import ipaddress
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from repositories import storage
from repositories.failures import ImportFailed, git_failure
from repositories.notices import Notice
from repositories.preflight import Patience
from tests import gitrepos
from tests.githttp import GitServer
from tests.repositories.importing import Reports, Starts, imported, wait_until
from tests.repositories.strangers import (
    ForeignStarts,
    given_away,
    not_root,
    only_root,
    open_folder,
)


@pytest.fixture(autouse=True)
def nothing_is_left_in_staging(settings, tmp_path):
    """Every test has a data directory of its own, and every failed import leaves it clean."""
    settings.FORGE_DATA_DIR = tmp_path / "data"
    yield
    left = list((storage.root() / ".staging").glob("*"))
    for path in left:
        assert (path / "HEAD").is_file(), f"{path} is only half there"


def leftovers() -> list[Path]:
    return list((storage.root() / ".staging").glob("*"))


def failure(*args, **more) -> ImportFailed:
    before = leftovers()
    with pytest.raises(ImportFailed) as caught:
        imported(*args, **more)
    assert leftovers() == before
    return caught.value


@pytest.fixture(scope="session")
def large_repository(tmp_path_factory) -> Path:
    """30,000 objects; built once, served from where it is."""
    return gitrepos.large(tmp_path_factory.mktemp("large"))


@pytest.fixture
def large(git_server, large_repository) -> str:
    (git_server.repositories / "large.git").symlink_to(large_repository)
    return "large"


def test_a_repository_arrives_whole(git_server):
    source = gitrepos.small(git_server.repositories)

    result = imported(git_server.url("small"))

    assert result.default_branch == "main"
    assert result.head_oid == gitrepos.git(source, "rev-parse", "main").decode()
    assert (result.branch_count, result.tag_count, result.notice) == (1, 1, "")
    assert result.final_url == git_server.url("small")
    assert result.size_bytes == storage.size_of(result.path) > 0
    assert gitrepos.git(result.path, "fsck", "--strict") == b""


def test_what_arrives_has_our_configuration_and_no_hooks(git_server):
    gitrepos.small(git_server.repositories)

    path = imported(git_server.url("small")).path

    assert not (path / "hooks").exists()
    assert not (path / "FETCH_HEAD").exists()
    assert "remote" not in (path / "config").read_text()
    assert gitrepos.git(path, "config", "core.bare") == b"true"
    assert (path / "objects/info/commit-graph").exists()
    assert (path / "packed-refs").exists()


def test_thirty_thousand_objects_move_the_bar(git_server, large):
    report = Reports()

    imported(git_server.url(large), report=report)

    steps = {told["step"] for told in report.told}
    assert len(set(report.percents)) >= 10
    assert report.percents == sorted(report.percents)
    assert report.percents[-1] < 100
    assert {"Connecting", "Receiving objects", "Resolving deltas"} <= steps
    assert report.told[-1]["received_bytes"] > 1_000_000


def test_a_redirect_to_the_address_with_git_at_its_end_is_followed(git_server):
    gitrepos.small(git_server.repositories)

    result = imported(git_server.url("small", "redirect"))

    assert result.final_url == git_server.url("small.git", "redirect")


@pytest.mark.parametrize("name", ["small", "small.git"])
def test_an_address_works_with_and_without_git_at_its_end(git_server, name):
    gitrepos.small(git_server.repositories)

    assert imported(git_server.url(name)).branch_count == 1


def test_a_redirect_to_another_server_is_followed_when_that_is_allowed(git_server, tmp_path):
    gitrepos.small(tmp_path)
    other = GitServer(tmp_path)
    git_server.elsewhere = other.url("").removesuffix("/")

    result = imported(git_server.url("small", "away"))
    other.close()

    assert result.final_url == other.url("small")


def test_a_redirect_to_a_refused_address_is_refused_before_it_is_asked(git_server, tmp_path):
    gitrepos.small(tmp_path)
    trap = GitServer(tmp_path, "127.0.0.2")
    git_server.elsewhere = trap.url("").removesuffix("/")

    failed = failure(git_server.url("small", "away"))
    trap.close()

    assert (failed.code, failed.permanent) == ("redirected", True)
    assert trap.requests == []


def test_a_name_that_leads_to_a_refused_address_is_refused_before_it_is_asked(git_server, settings):
    settings.FORGE_IMPORT_ALLOWED_NETWORKS = []

    failed = failure(f"http://localhost:{git_server.port}/normal/small")

    assert (failed.code, failed.permanent) == ("address", True)
    assert git_server.requests == []


def test_a_name_works_and_git_connects_where_the_check_did(git_server, loopback_by_name):
    gitrepos.small(git_server.repositories)
    url = f"http://localhost:{git_server.port}/normal/small"

    assert imported(url).final_url == url


@pytest.fixture
def loopback_by_name(settings) -> None:
    """`localhost` may have an IPv6 address too, at which nobody listens."""
    settings.FORGE_IMPORT_ALLOWED_NETWORKS = [
        ipaddress.ip_network("127.0.0.0/8"),
        ipaddress.ip_network("::1/128"),
    ]


def test_a_name_that_does_not_exist_may_exist_later(settings):
    failed = failure("https://does-not-exist.invalid/a")

    assert (failed.code, failed.permanent) == ("unknown_host", False)


def test_a_port_where_nobody_listens_may_have_a_listener_later(git_server):
    url = git_server.url("small")
    git_server.close()

    failed = failure(url)

    assert (failed.code, failed.permanent) == ("connection_lost", False)


@pytest.mark.parametrize(
    ("mode", "code", "permanent"),
    [
        ("page", "not_git", True),
        ("dumb", "not_git", True),
        ("off-path", "not_git", True),
        ("loop", "redirected", True),
        ("status-400", "not_git", True),
        ("status-401", "unauthorized", True),
        ("status-403", "forbidden", True),
        ("status-404", "not_found", True),
        ("status-410", "not_found", True),
        ("status-429", "server_error", False),
        ("status-500", "server_error", False),
        ("status-503", "server_error", False),
        ("silent", "timeout", False),
        ("silent-pack", "timeout", False),
        ("gone", "not_found", True),
        ("error", "git", False),
    ],
)
def test_a_failure_says_what_it_is_and_whether_to_try_again(git_server, mode, code, permanent):
    gitrepos.small(git_server.repositories)

    failed = failure(git_server.url("small", mode))

    assert (failed.code, failed.permanent) == (code, permanent)
    assert failed.reason.endswith(".")
    assert str(failed) == failed.reason


def test_a_repository_that_is_not_there_is_not_found(git_server):
    assert failure(git_server.url("missing")).code == "not_found"


def test_a_connection_that_is_cut_in_the_middle_can_be_tried_again(git_server, large):
    failed = failure(git_server.url(large, "cut"))

    assert (failed.code, failed.permanent) == ("connection_lost", False)


def test_words_of_the_server_never_look_like_progress(git_server):
    gitrepos.small(git_server.repositories)
    report = Reports()

    imported(git_server.url("small", "forged"), report=report)

    before = [told for told in report.told if told["step"].startswith("The server")]
    assert before
    assert all(told["percent"] <= 10 for told in before)
    assert report.percents == sorted(report.percents)


def test_an_error_of_the_server_can_be_stored_and_shown(git_server):
    gitrepos.small(git_server.repositories)

    failed = failure(git_server.url("small", "error"))

    assert "way" not in failed.reason
    assert "no  way red" in failed.detail
    for unwanted in ("\x00", "\x1b", "\u202e", "[31m"):
        assert unwanted not in failed.reason + failed.detail


def test_an_empty_repository_is_imported(git_server):
    gitrepos.empty(git_server.repositories)

    result = imported(git_server.url("empty"))

    assert (result.default_branch, result.head_oid) == ("main", "")
    assert (result.branch_count, result.tag_count, result.notice) == (0, 0, "")


def test_the_default_branch_is_the_one_of_the_source(git_server):
    gitrepos.branches(git_server.repositories, "other", "main", "trunk", head="trunk")

    result = imported(git_server.url("other"))

    assert (result.default_branch, result.notice) == ("trunk", "")
    assert gitrepos.git(result.path, "symbolic-ref", "HEAD") == b"refs/heads/trunk"


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["dev"], "dev"),
        (["zebra", "main", "newer"], "main"),
        (["zebra", "master", "newer"], "master"),
        (["zebra", "trunk", "newer"], "trunk"),
        (["zebra", "apple", "newest"], "newest"),
    ],
)
def test_a_head_that_points_nowhere_gets_a_branch_and_a_notice(git_server, names, chosen):
    gitrepos.branches(git_server.repositories, "lost", *names, head="gone")

    result = imported(git_server.url("lost"))

    assert (result.default_branch, result.notice) == (chosen, Notice.HEAD_NOWHERE)
    assert gitrepos.git(result.path, "log", "-1", "--format=%H") == result.head_oid.encode()


def test_a_detached_head_gets_the_branch_at_its_commit_and_a_notice(git_server):
    gitrepos.detached(git_server.repositories)

    result = imported(git_server.url("detached"))

    assert (result.default_branch, result.notice) == ("beta", Notice.HEAD_DETACHED)


def test_only_branches_and_tags_are_taken(git_server):
    gitrepos.pull_requests(git_server.repositories, count=500)

    result = imported(git_server.url("pulls"))

    assert (result.branch_count, result.tag_count) == (1, 1)
    names = gitrepos.git(result.path, "for-each-ref", "--format=%(refname)").splitlines()
    assert names == [b"refs/heads/main", b"refs/tags/v1"]


def test_names_and_authors_that_are_no_utf8_are_imported(git_server):
    gitrepos.strange(git_server.repositories)

    path = imported(git_server.url("strange")).path

    assert b"caf\xe9.txt" in gitrepos.git(path, "ls-tree", "-z", "--name-only", "HEAD")


def test_a_default_branch_that_is_no_utf8_is_shown_with_a_replacement(git_server):
    source = gitrepos.branches(git_server.repositories, "latin", b"caf\xe9")
    (source / "HEAD").write_bytes(b"ref: refs/heads/caf\xe9\n")

    result = imported(git_server.url("latin"))

    assert result.default_branch == "caf\N{REPLACEMENT CHARACTER}"
    assert len(result.head_oid) == 40


def test_branch_names_that_look_like_options_are_only_names(git_server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gitrepos.hostile_branches(git_server.repositories)

    result = imported(git_server.url("hostile"))

    assert (result.branch_count, result.default_branch) == (10, "main")
    assert not list(tmp_path.rglob("touch-x"))


def test_forbidden_objects_are_refused(git_server):
    stream = [
        b"blob\nmark :1\ndata 2\nx\n",
        *gitrepos.commit(files={".gitmodules": b'[submodule "../x"]\n\tpath = a\n\turl = -x\n'}),
    ]
    gitrepos.written(gitrepos.empty(git_server.repositories, "bad"), stream)

    failed = failure(git_server.url("bad"))

    assert (failed.code, failed.permanent) == ("broken", True)


def test_object_names_by_sha256_are_refused_with_a_reason(git_server):
    path = gitrepos.empty(git_server.repositories, "long", object_format="sha256")
    gitrepos.written(path, gitrepos.commit())

    failed = failure(git_server.url("long"))

    assert (failed.code, failed.permanent) == ("object_format", True)


def test_an_import_that_grows_too_large_is_stopped(git_server, large):
    failed = failure(git_server.url(large), max_bytes=100_000)

    assert (failed.code, failed.permanent) == ("too_big", True)


def test_a_refused_address_is_refused_again_when_the_job_runs():
    assert failure("https://169.254.169.254/a").code == "address"
    assert failure("ext::sh -c id").code == "address"


class Stopped(BaseException):
    """What a cancelled job raises."""


def test_a_report_that_raises_stops_git_and_leaves_nothing(git_server, large):
    starts = Starts()

    def stop(percent: int) -> None:
        if percent > 10:
            raise Stopped

    with pytest.raises(Stopped):
        imported(git_server.url(large), report=Reports(stop), starts=starts)

    assert starts.living() == []
    assert leftovers() == []


def test_a_report_that_raises_is_heard_while_the_server_is_silent(git_server):
    def stop(percent: int) -> None:
        if git_server.reached.is_set():
            raise Stopped

    began = time.monotonic()
    with pytest.raises(Stopped):
        imported(
            git_server.url("small", "silent"), report=Reports(stop), patience=Patience(read=60)
        )

    assert time.monotonic() - began < 10
    assert leftovers() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_killing_the_process_group_ends_the_import_and_leaves_nothing(git_server, large, number):
    starts = Starts()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(imported, git_server.url(large, "held"), starts=starts)
        assert git_server.reached.wait(10)
        os.killpg(starts.processes[-1].pid, number)
        failed = future.exception(10)

    assert isinstance(failed, ImportFailed)
    assert (failed.code, failed.permanent) == ("stopped", False)
    wait_until(lambda: not starts.living())
    assert leftovers() == []


def test_the_bar_moves_while_the_server_is_slow(git_server, large):
    seen = threading.Event()

    def look(percent: int) -> None:
        if percent > 10:
            seen.set()
            git_server.go_on.set()

    git_server.halfway = 2_000_000
    imported(git_server.url(large, "held"), report=Reports(look))

    assert seen.is_set()


def test_a_local_repository_is_imported_by_its_path(tmp_path):
    source = gitrepos.small(tmp_path)

    result = imported(source, local=True)

    assert (result.branch_count, result.tag_count) == (1, 1)
    assert result.final_url == str(source)
    assert not (result.path / "objects/info/alternates").exists()


def test_a_checkout_and_a_linked_worktree_are_imported_by_their_paths(tmp_path):
    bare = gitrepos.small(tmp_path)
    for path in ("one", "two"):
        gitrepos.git(bare, "worktree", "add", "--quiet", "--detach", str(tmp_path / path))

    assert imported(tmp_path / "one", local=True).branch_count == 1


@pytest.mark.parametrize("name", ["small", 'with space "quotes" \\n # and ; more', "caf\xe9\n"])
def test_a_local_repository_of_another_account_is_imported(tmp_path, name):
    source = gitrepos.small(tmp_path, name)

    assert imported(source, local=True, starts=ForeignStarts()).branch_count == 1


@only_root
def test_local_repositories_that_were_given_away_are_imported_at_the_same_time(tmp_path):
    bare = gitrepos.small(tmp_path)
    gitrepos.git(bare, "worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
    checkout = tmp_path / "checkout"
    gitrepos.git(bare, "clone", "--quiet", str(bare), str(checkout))
    sources = [given_away(path) for path in (bare, tmp_path / "linked", checkout)]

    with ThreadPoolExecutor() as pool:
        results = list(pool.map(lambda source: imported(source, local=True), sources * 4))

    assert {result.branch_count for result in results} == {1}


def test_trust_in_a_local_repository_ends_with_its_import(tmp_path):
    source = gitrepos.small(tmp_path)
    trusted = []

    def look(percent):
        files = (storage.root() / ".staging").glob("*/trusted-source")
        trusted.extend(path.read_text() for path in files)

    path = imported(source, local=True, report=Reports(look)).path

    assert set(trusted) == {f'[safe]\n\tdirectory = "{source}"\n\tdirectory = "{source}/.git"\n'}
    assert not (path / "trusted-source").exists()
    assert "safe" not in (path / "config").read_text()


def test_a_repository_that_git_does_not_trust_is_not_tried_again():
    # Some versions of git serve a foreign repository, some do not: their words decide, not they.
    words = b"fatal: detected dubious ownership in repository at '/srv/a'"
    lost = b"fatal: the remote end hung up unexpectedly"

    failed = git_failure(128, own_lines=[words, lost])

    assert (failed.code, failed.permanent) == ("ownership", True)


@pytest.mark.parametrize("closed", [".", "HEAD", "config", "refs/heads", "objects", "objects/pack"])
def test_a_local_repository_that_may_not_be_read_is_refused_with_a_reason(settings, closed):
    with open_folder() as folder:
        settings.FORGE_DATA_DIR = folder / "data"
        settings.FORGE_DATA_DIR.mkdir(mode=0o777)
        settings.FORGE_DATA_DIR.chmod(0o777)
        path = gitrepos.small(folder) / closed
        before = path.stat().st_mode
        path.chmod(0)
        with not_root():
            failed = failure(folder / "small.git", local=True)
        path.chmod(before)

        assert (failed.code, failed.permanent) == ("unreadable", True)
        assert failed.reason.endswith(f"which Forge runs as, may not read {path}.")


def test_a_shallow_checkout_is_imported_with_a_notice(tmp_path):
    source = gitrepos.large(tmp_path, objects=300)
    shallow = tmp_path / "shallow"
    gitrepos.git(source, "clone", "--quiet", "--depth=1", f"file://{source}", str(shallow))
    gitrepos.git(shallow / ".git", "checkout", "--quiet", "--detach")

    result = imported(shallow, local=True)

    assert result.notice.split() == [Notice.HEAD_DETACHED, Notice.SHALLOW]


def test_a_local_path_is_no_address_and_an_address_no_local_path(git_server, tmp_path):
    source = gitrepos.small(tmp_path)

    assert failure(source).code == "address"
    assert failure(f"file://{source}").code == "address"
    assert failure(git_server.url("small"), local=True).code == "not_git"
    assert failure(tmp_path, local=True).permanent


def test_a_server_with_a_trusted_certificate_is_used_by_its_name(
    tmp_path, loopback_by_name, monkeypatch
):
    certificate = Path(__file__).with_name("localhost.pem")
    gitrepos.small(tmp_path)
    server = GitServer(tmp_path, certificate=certificate)
    untrusted = failure(server.url("small"))
    monkeypatch.setenv("GIT_SSL_CAINFO", str(certificate))

    result = imported(server.url("small"))
    server.elsewhere = f"http://localhost:{server.port}"
    downgraded = failure(server.url("small", "away"))
    wrong_name = failure(server.url("small").replace("localhost", "127.0.0.1"))
    server.close()

    assert result.final_url.startswith("https://localhost:")
    assert (untrusted.code, untrusted.permanent) == ("certificate", True)
    assert (downgraded.code, downgraded.permanent) == ("redirected", True)
    assert (wrong_name.code, wrong_name.permanent) == ("certificate", True)


def test_nothing_of_the_machine_reaches_git(git_server, tmp_path, monkeypatch):
    gitrepos.small(git_server.repositories)
    config = tmp_path / ".gitconfig"
    config.write_text('[url "http://127.0.0.1:1/"]\n\tinsteadOf = http://127.0.0.1\n')
    for name, value in {
        "HOME": str(tmp_path),
        "GIT_CONFIG_GLOBAL": str(config),
        "GIT_DIR": "/nonexistent",
        "http_proxy": "http://127.0.0.1:1",
        "GIT_TRACE": str(tmp_path / "trace"),
        "LC_ALL": "fr_FR.UTF-8",
    }.items():
        monkeypatch.setenv(name, value)

    assert imported(git_server.url("small")).branch_count == 1
    assert not (tmp_path / "trace").exists()
