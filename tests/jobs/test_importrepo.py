"""`manage.py importrepo` as a process of its own, beside a worker."""

import io
import os
import pty
import re
import select
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from accounts.models import User
from jobs.engine.worker import Worker
from jobs.models import ImportJob
from repositories.models import Repository
from tests import gitrepos
from tests.githttp import GitServer
from tests.jobs.conftest import (
    SOURCE,
    completed,
    enqueued,
    failed,
    files,
    fresh,
    retried,
    source_of,
)
from tests.waiting import wait_for
from tests.workers import HEEDING_SIGNALS, command_environment, command_line, has_status

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., Worker]
ALLOWED = {"FORGE_IMPORT_ALLOWED_NETWORKS": "127.0.0.1/32"}


def importrepo(*arguments: str | bytes, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*command_line("importrepo"), *arguments],
        env=command_environment(**ALLOWED, **environment),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def refusal(*arguments: str) -> str:
    """The sentence by which the command, called in this process, refuses; nothing is enqueued."""
    before = ImportJob.objects.count()
    with pytest.raises(CommandError) as refused:
        call_command("importrepo", *arguments)
    assert refused.value.returncode == 1
    assert ImportJob.objects.count() == before
    return str(refused.value)


def enqueued_by(*arguments: str) -> str:
    """What the command, called in this process, says when it does not wait."""
    said = io.StringIO()
    call_command("importrepo", *arguments, "--no-wait", stdout=said)
    return said.getvalue()


def test_a_url_is_imported_for_the_first_administrator(
    root: User, git_server: GitServer, worker: Start, data_dir: Path
) -> None:
    gitrepos.small(git_server.repositories)
    worker(ImportJob)

    done = importrepo(git_server.url("small"))

    assert (done.returncode, done.stdout) == (0, "/root/small is there.\n"), done.stderr
    assert "Completed" in done.stderr or "100%" in done.stderr
    repository = Repository.objects.get()
    assert (repository.owner, repository.visibility) == (root, "private")
    assert ImportJob.objects.get().local is False
    assert files(data_dir) == [f"{repository.pk}.git"]


def test_a_path_is_imported_for_its_owner_under_its_name(
    root: User, ada: User, worker: Start, tmp_path: Path
) -> None:
    source = gitrepos.small(tmp_path)
    worker(ImportJob)

    done = importrepo(str(source), "--owner", "ADA", "--name", "mill", "--public")

    assert (done.returncode, done.stdout) == (0, "/ada/mill is there.\n"), done.stderr
    repository = Repository.objects.get()
    assert (repository.owner, repository.slug, repository.visibility) == (ada, "mill", "public")
    job = ImportJob.objects.get()
    assert (job.local, job.source_url) == (True, str(source))


def test_no_wait_enqueues_and_leaves(root: User, git_server: GitServer) -> None:
    done = importrepo(git_server.url("silent", "silent"), "--no-wait")
    job = ImportJob.objects.get()
    assert (done.returncode, done.stdout) == (0, f"{job.pk} is pending: root/silent\n")
    assert (job.status, job.max_running_seconds) == ("pending", 3600)
    assert git_server.requests == []


def test_an_import_that_fails_ends_with_one_and_the_reason(
    root: User, git_server: GitServer, worker: Start
) -> None:
    worker(ImportJob)
    done = importrepo(git_server.url("gone", "status-404"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "There is no repository at this address." in done.stderr
    assert "Traceback" not in done.stderr


def test_what_cannot_be_imported_is_refused_in_a_sentence(root: User, tmp_path: Path) -> None:
    completed(enqueued(root, "Taken"))
    enqueued(root, "busy")
    missing = "There is no such directory."
    cases = {
        (str(tmp_path / "none"),): missing,
        (str(tmp_path),): "This directory is not a Git repository.",
        ("http://10.0.0.1/a",): "Forge does not import from this address. The administrator can "
        "allow its network.",
        (
            "https://me:hunter2@example.org/a",
        ): "Leave the name and the password out of the address.",
        ("ssh://example.org/a",): "The address must begin with https:// or http://.",
        (SOURCE, "--owner", "nobody"): "There is nobody with the handle nobody.",
        (SOURCE, "--name", "taken"): "root/taken: You have a repository of this name already.",
        (
            "https://example.org/other",
            "--name",
            "busy",
        ): "Another import to root/busy is waiting or running.",
    }
    for arguments, words in cases.items():
        assert refusal(*arguments) == words
    assert refusal(SOURCE, "--name", "a/b").startswith("Use at most 100 letters, digits, dots")
    assert refusal("https://example.org/").startswith("Use at most 100 letters, digits, dots")


def test_a_path_that_is_no_text_is_refused_in_a_sentence_and_without_traceback(
    root: User, tmp_path: Path
) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9.git"
    gitrepos.small(tmp_path).rename(os.fsdecode(path))
    done = importrepo(path, "--name", "cafe")
    assert (done.returncode, done.stdout, ImportJob.objects.count()) == (1, "", 0)
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("CommandError: source_url holds a lone surrogate")


def test_without_an_administrator_the_owner_has_to_be_named(ada: User) -> None:
    assert refusal(SOURCE) == "There is no administrator yet: name the owner with --owner."
    assert enqueued_by(SOURCE, "--owner", "ada").endswith("ada/engine\n")


def test_the_same_command_twice_makes_one_job(root: User) -> None:
    assert enqueued_by(SOURCE) == enqueued_by(SOURCE)
    assert ImportJob.objects.count() == 1
    assert refusal(SOURCE, "--public") == "Another import to root/engine is waiting or running."


# At a terminal.


class Command:
    """`importrepo` at a terminal."""

    def __init__(self, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [*HEEDING_SIGNALS, *command_line("importrepo"), *arguments],
            env=command_environment(**ALLOWED, TERM="xterm", COLUMNS="120"),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self._seen = b""

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def text(self) -> str:
        """All that was shown up to now."""
        while select.select([self._ours], [], [], 0)[0]:
            try:
                self._seen += os.read(self._ours, 65536)
            except OSError:
                # The other side is closed, and everything was read.
                break
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._seen.decode(errors="replace"))


@pytest.fixture
def command(root: User) -> Any:
    started: list[Command] = []

    def start(*arguments: str) -> Command:
        started.append(Command(*arguments))
        return started[-1]

    yield start
    for one in started:
        one.close()


def shows_what_the_row_says(shown: Command) -> bool:
    """Whether the newest line has the step and the percentage of an import under way."""
    job = ImportJob.objects.filter(progress_pct__gt=0).first()
    line = shown.text().rpartition("\r")[2]
    return job is not None and job.progress_step in line and f"{job.progress_pct}%" in line


def test_the_bar_shows_the_place_the_step_and_the_percent(
    command: Callable[..., Command], git_server: GitServer, worker: Start
) -> None:
    shown = command(source_of(git_server))
    wait_for(lambda: "number 1 in the queue" in shown.text())
    worker(ImportJob)
    wait_for(lambda: shows_what_the_row_says(shown))
    git_server.go_on.set()
    assert shown.process.wait(20) == 0
    assert re.search(r"100%.*/root/bulky is there\.", shown.text(), re.DOTALL)


def test_ctrl_c_leaves_the_import_running(
    command: Callable[..., Command], git_server: GitServer, worker: Start, data_dir: Path
) -> None:
    shown = command(source_of(git_server))
    worker(ImportJob)
    wait_for(lambda: shows_what_the_row_says(shown))

    shown.process.send_signal(signal.SIGINT)

    assert shown.process.wait(20) == 130
    assert "The import goes on without this command." in shown.text()
    assert "Traceback" not in shown.text()
    job = ImportJob.objects.get()
    assert (job.status, job.cancel_requested_at) == ("running", None)
    git_server.go_on.set()
    wait_for(has_status(job, "completed"))
    assert fresh(job).attempts == 1


def test_an_error_that_looks_like_markup_is_shown_as_it_is(
    command: Callable[..., Command], git_server: GitServer
) -> None:
    shown = command("https://example.org/a")
    wait_for(lambda: "in the queue" in shown.text())
    job = ImportJob.objects.get()
    retried(job, "[/red] is [bold]no[/bold] end", delay=1000)
    wait_for(lambda: "[/red] is [bold]no[/bold] end" in shown.text())
    ImportJob.objects.update(due=True)
    failed(job, "[/red] again")
    assert shown.process.wait(20) == 1
    assert "[/red] again" in shown.text()
    assert "Traceback" not in shown.text()


def test_an_import_that_is_cancelled_or_deleted_meanwhile_ends_with_one_and_says_so(
    command: Callable[..., Command],
) -> None:
    ends = {"cancel": "The import is cancelled.", "delete": "Job not found: it was deleted."}
    shown = {end: command("https://example.org/a", "--name", end) for end in ends}
    for end, words in ends.items():
        wait_for(lambda end=end: "in the queue" in shown[end].text())
        getattr(ImportJob.objects.get(slug=end), end)()
        assert shown[end].process.wait(20) == 1
        assert words in shown[end].text()
        assert "Traceback" not in shown[end].text()
