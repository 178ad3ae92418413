"""Imports by a worker in this process, from a real server: how they end, and what they leave."""

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client

from accounts.models import User
from jobs.apps import make_built_in_schedules
from jobs.engine.execution import Run, execute
from jobs.engine.finishing import write
from jobs.engine.kinds import pause, resume
from jobs.engine.maintenance import Sweeper
from jobs.engine.models import Schedule, TaskJob
from jobs.engine.testing import run_pending
from jobs.engine.worker import Worker
from jobs.models import ImportJob
from repositories import importing
from repositories.models import Repository
from tests import gitrepos
from tests.githttp import GitServer
from tests.jobs.conftest import (
    assert_nothing_left,
    begun,
    claimed,
    completed,
    enqueued,
    files,
    fresh,
    imported,
    source_of,
)
from tests.waiting import wait_for
from tests.workers import age_lease, has_status, make_due, run_due

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., Worker]
Override = Callable[..., None]


def run_imports() -> None:
    assert run_due(ImportJob) == 0


# Completed.


def test_an_import_lands_as_a_repository_with_its_files_in_place(
    ada: User, git_server: GitServer, data_dir: Path, page: Client
) -> None:
    source = gitrepos.small(git_server.repositories)
    job = enqueued(ada, source=git_server.url("small"), visibility="public")

    run_imports()

    job = fresh(job)
    repository = Repository.objects.get()
    assert (job.status, job.progress_pct, job.attempts) == ("completed", 100, 1)
    assert (job.repository, job.error_message, job.attempt_log) == (repository, "", [])
    assert (repository.owner, repository.slug, repository.visibility) == (ada, "engine", "public")
    assert repository.source_url == git_server.url("small")
    assert repository.id == job.pk
    assert (repository.default_branch, repository.branch_count, repository.tag_count) == (
        "main",
        1,
        1,
    )
    assert files(data_dir) == [f"{job.pk}.git"]
    assert gitrepos.git(repository.path, "rev-parse", "main") == gitrepos.git(
        source, "rev-parse", "main"
    )
    assert 'href="/ada/engine"' in page.get(f"/import/{job.pk}/progress").content.decode()
    assert page.get("/ada/engine").status_code == 200


def test_a_hundred_percent_is_never_shown_before_the_repository(
    ada: User, git_server: GitServer, worker: Start
) -> None:
    gitrepos.large(git_server.repositories, objects=3000)
    job = enqueued(ada, source=git_server.url("large"))
    worker(ImportJob)
    seen: list[tuple[str, int, bool]] = []

    def over() -> bool:
        row = fresh(job)
        seen.append((row.status, row.progress_pct, row.repository_id is not None))
        return row.is_over

    wait_for(over)
    percents = [percent for _status, percent, _there in seen]
    assert percents == sorted(percents)
    assert seen[-1] == ("completed", 100, True)
    assert not any(percent == 100 and not there for _status, percent, there in seen)


def test_an_empty_repository_is_imported_and_says_so(
    ada: User, git_server: GitServer, page: Client
) -> None:
    gitrepos.empty(git_server.repositories)
    enqueued(ada, source=git_server.url("empty"))
    run_imports()
    repository = Repository.objects.get()
    assert (repository.head_oid, repository.branch_count) == ("", 0)
    assert page.get("/ada/engine").status_code == 200


@pytest.mark.parametrize("branch", ["trunk", "feature/ünïcödé-分支", "x%b&amp;<i>"])
def test_odd_default_branches_arrive_as_they_are(
    ada: User, git_server: GitServer, page: Client, branch: str
) -> None:
    gitrepos.small(git_server.repositories, branch=branch)
    enqueued(ada, source=git_server.url("small"))
    run_imports()
    assert Repository.objects.get().default_branch == branch
    html = page.get("/ada/engine").content.decode()
    assert "<i>" not in html.partition("<main")[2]


def test_a_head_that_points_nowhere_is_told_on_the_page(
    ada: User, git_server: GitServer, page: Client
) -> None:
    gitrepos.branches(git_server.repositories, "odd", "alpha", "beta", head="gone")
    job = enqueued(ada, source=git_server.url("odd"))
    run_imports()
    assert Repository.objects.get().default_branch in ("alpha", "beta")
    html = page.get(f"/import/{job.pk}/progress").content.decode()
    assert "The source names no default branch that exists. Forge chose one." in html


def test_a_path_of_this_machine_is_read_only_with_the_flag(ada: User, tmp_path: Path) -> None:
    path = str(gitrepos.small(tmp_path))
    local = enqueued(ada, "local", source=path, local=True)
    not_local = enqueued(ada, "not-local", source=path)
    file_url = enqueued(ada, "file-url", source=f"file://{path}")

    run_imports()

    assert fresh(local).status == "completed"
    assert Repository.objects.get().source_url == ""
    for job in (not_local, file_url):
        job = fresh(job)
        assert (job.status, job.attempts) == ("failed", 1)
        assert job.error_message == "The address must begin with https:// or http://."


# Failed at once.


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        (
            "status-401",
            "The server asks for a name and a password: the repository is private, or not there.",
        ),
        ("status-403", "The server refuses access to the repository."),
        ("status-404", "There is no repository at this address."),
        ("page", "There is no Git repository at this address."),
        ("off-path", "There is no Git repository at this address."),
        ("loop", "The server redirects too many times."),
        ("gone", "There is no repository at this address."),
    ],
)
def test_what_trying_again_cannot_cure_fails_at_once_in_plain_words(
    ada: User, git_server: GitServer, data_dir: Path, page: Client, mode: str, message: str
) -> None:
    gitrepos.small(git_server.repositories)
    job = enqueued(ada, source=git_server.url("small", mode))

    run_imports()

    job = fresh(job)
    assert (job.status, job.attempts, job.error_message) == ("failed", 1, message)
    assert_nothing_left(data_dir)
    assert message in page.get(f"/import/{job.pk}/progress").content.decode()


def test_a_redirect_to_an_address_that_is_refused_fails_at_once(
    ada: User, git_server: GitServer, data_dir: Path
) -> None:
    git_server.elsewhere = "http://10.0.0.1"
    job = enqueued(ada, source=git_server.url("small", "away"))
    run_imports()
    job = fresh(job)
    assert (job.status, job.attempts) == ("failed", 1)
    assert job.error_message == (
        "The server redirects to an address that is not allowed: Forge does not import from this "
        "address. The administrator can allow its network."
    )
    assert_nothing_left(data_dir)


def test_an_address_that_is_no_longer_allowed_when_the_job_runs_is_refused(
    ada: User, git_server: GitServer, settings
) -> None:
    job = enqueued(ada, source=git_server.url("small"))
    settings.FORGE_IMPORT_ALLOWED_NETWORKS = []
    run_imports()
    job = fresh(job)
    assert (job.status, job.attempts) == ("failed", 1)
    assert job.error_message.startswith("Forge does not import from this address.")
    assert git_server.requests == []


def test_a_name_that_is_taken_at_the_end_fails_at_once_and_leaves_the_other_alone(
    ada: User, git_server: GitServer, data_dir: Path, worker: Start
) -> None:
    job = enqueued(ada, source=source_of(git_server))
    worker(ImportJob)
    begun(job, git_server, data_dir)
    other = Repository.objects.create(id=enqueued(ada, "x").pk, owner=ada, slug="ENGINE")
    git_server.go_on.set()

    wait_for(has_status(job, "failed"))

    job = fresh(job)
    assert (job.attempts, job.repository) == (1, None)
    assert job.error_message == "You have a repository of this name already."
    assert Repository.objects.get() == other
    wait_for(lambda: files(data_dir) == [])


# Tried again.


@pytest.mark.parametrize("mode", ["cut", "status-500", "status-503", "status-429"])
def test_what_may_pass_is_tried_again_and_the_page_says_when_and_why(
    ada: User, git_server: GitServer, data_dir: Path, page: Client, mode: str
) -> None:
    job = enqueued(ada, source=source_of(git_server, mode))

    run_imports()

    job = fresh(job)
    assert (job.status, job.attempts, job.progress_pct) == ("pending", 1, 0)
    assert_nothing_left(data_dir)
    html = page.get(f"/import/{job.pk}/progress").content.decode()
    assert f"Next attempt at {job.run_at:%H:%M:%S} UTC" in html
    words = "The connection to the server was lost." if mode == "cut" else "a problem of its own."
    assert words in html


def test_an_import_that_was_cut_lands_when_the_line_is_good_again(
    ada: User, git_server: GitServer, data_dir: Path
) -> None:
    job = enqueued(ada, source=source_of(git_server, "cut"))
    run_imports()
    assert fresh(job).status == "pending"
    ImportJob.objects.update(source_url=git_server.url("bulky"))
    make_due(ImportJob)

    run_imports()

    assert (fresh(job).status, fresh(job).attempts) == ("completed", 2)
    assert files(data_dir) == [f"{job.pk}.git"]


def test_after_its_attempts_it_has_failed_with_the_last_reason(
    ada: User, git_server: GitServer, data_dir: Path, page: Client
) -> None:
    job = enqueued(ada, source=source_of(git_server, "cut"))
    for _ in range(3):
        run_imports()
        make_due(ImportJob)
    job = fresh(job)
    assert (job.status, job.attempts) == ("failed", 3)
    assert [line["number"] for line in job.attempt_log] == [1, 2, 3]
    html = page.get(f"/import/{job.pk}/progress").content.decode()
    assert "The connection to the server was lost." in html
    assert "Forge tried 3 times." in html
    assert_nothing_left(data_dir)


# Stopped in the middle.


def test_cancel_in_the_middle_leaves_neither_process_nor_file_and_frees_the_name(
    ada: User, git_server: GitServer, data_dir: Path, worker: Start, page: Client
) -> None:
    job = enqueued(ada, source=source_of(git_server))
    worker(ImportJob)
    begun(job, git_server, data_dir)

    asked = time.monotonic()
    page.post(f"/import/{job.pk}/cancel")
    wait_for(has_status(job, "cancelled"))

    assert time.monotonic() - asked < 5
    assert_nothing_left(data_dir)
    gitrepos.small(git_server.repositories)
    again = page.post("/import", {"source_url": git_server.url("small"), "name": "engine"})
    assert again.status_code == 302
    wait_for(lambda: Repository.objects.filter(slug="engine").exists())


def test_cancel_ends_an_import_whose_server_never_answers(
    ada: User, git_server: GitServer, data_dir: Path, worker: Start
) -> None:
    job = enqueued(ada, source=git_server.url("any", "silent"))
    worker(ImportJob)
    assert git_server.reached.wait(20)
    asked = time.monotonic()
    fresh(job).cancel()
    wait_for(has_status(job, "cancelled"))
    assert time.monotonic() - asked < 5
    assert_nothing_left(data_dir)


def test_a_time_limit_in_the_middle_leaves_neither_process_nor_file(
    ada: User, git_server: GitServer, data_dir: Path, worker: Start
) -> None:
    job = enqueued(ada, source=source_of(git_server), max_running_seconds=1.5, max_attempts=1)
    worker(ImportJob)
    begun(job, git_server, data_dir)
    wait_for(has_status(job, "failed"))
    assert fresh(job).error_message == "Took longer than the limit of 1.5 seconds."
    assert_nothing_left(data_dir)


def test_a_job_that_is_deleted_in_the_middle_leaves_nothing(
    ada: User,
    git_server: GitServer,
    data_dir: Path,
    worker: Start,
    jobs_settings: Override,
) -> None:
    jobs_settings(LEASE_SECONDS=2, HEARTBEAT_SECONDS=0.3)
    job = enqueued(ada, source=source_of(git_server))
    worker(ImportJob)
    begun(job, git_server, data_dir)

    ImportJob.objects.filter(pk=job.pk).delete()

    wait_for(lambda: files(data_dir) == [])
    assert_nothing_left(data_dir)


def test_a_job_that_is_deleted_just_before_its_end_leaves_nothing(
    ada: User, git_server: GitServer, data_dir: Path
) -> None:
    gitrepos.small(git_server.repositories)
    held = claimed(enqueued(ada, source=git_server.url("small")))
    outcome = execute(Run(held, lease_ends=float("inf")))
    assert outcome.decision.verb == "complete"
    assert len(files(data_dir)) == 1

    ImportJob.objects.all().delete()
    write(outcome)

    assert ImportJob.objects.count() == 0
    assert_nothing_left(data_dir)


def test_a_person_with_an_import_can_be_removed_and_nothing_stays(
    ada: User, git_server: GitServer, data_dir: Path, worker: Start, jobs_settings: Override
) -> None:
    jobs_settings(LEASE_SECONDS=2, HEARTBEAT_SECONDS=0.3)
    job = enqueued(ada, source=source_of(git_server))
    worker(ImportJob)
    begun(job, git_server, data_dir)
    ada.delete()
    git_server.go_on.set()
    wait_for(lambda: files(data_dir) == [])
    assert_nothing_left(data_dir)


def test_a_worker_that_is_told_twice_to_stop_hands_the_import_back_unspent(
    ada: User, git_server: GitServer, data_dir: Path, worker: Start
) -> None:
    job = enqueued(ada, source=source_of(git_server))
    running = worker(ImportJob)
    begun(job, git_server, data_dir)
    running.stop()
    running.stop()
    wait_for(has_status(job, "pending"))
    row = fresh(job)
    assert (row.attempts, row.due, row.progress_pct) == (0, True, 0)
    assert [line["outcome"] for line in row.attempt_log] == ["released"]
    assert_nothing_left(data_dir)


def test_what_an_earlier_attempt_left_aside_is_cleared_by_the_next(
    ada: User, git_server: GitServer, data_dir: Path
) -> None:
    gitrepos.small(git_server.repositories)
    job = enqueued(ada, source=git_server.url("small"))
    held = claimed(job)
    left = imported(held).path
    ImportJob.objects.rescue(dead=[held.worker])
    assert left.exists()

    run_imports()

    assert fresh(job).status == "completed"
    assert files(data_dir) == [f"{job.pk}.git"]


# The commit at the end.


@pytest.fixture
def commit_fails(transactional_db: None):
    """From now on, no transaction that inserts a repository can be committed."""
    # A foreign key that leads nowhere is found at the commit, on both databases.
    insert = "INSERT INTO accounts_user_groups (user_id, group_id) VALUES (-1, -1)"
    after = "CREATE TRIGGER poison AFTER INSERT ON repositories_repository"
    if connection.vendor == "sqlite":
        make, drop = f"{after} BEGIN {insert}; END", "DROP TRIGGER IF EXISTS poison"
    else:
        body = f"$$ BEGIN {insert}; RETURN NEW; END $$"
        make = (
            f"CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS {body}; "
            f"{after} FOR EACH ROW EXECUTE FUNCTION poison()"
        )
        drop = "DROP FUNCTION IF EXISTS poison CASCADE"

    def cure() -> None:
        with connection.cursor() as cursor:
            cursor.execute(drop)

    with connection.cursor() as cursor:
        cursor.execute(make)
    yield cure
    cure()


def test_a_commit_that_fails_leaves_neither_row_nor_files_and_is_tried_again(
    ada: User, git_server: GitServer, data_dir: Path, page: Client, commit_fails
) -> None:
    gitrepos.small(git_server.repositories)
    job = enqueued(ada, source=git_server.url("small"))

    run_imports()

    row = fresh(job)
    assert (row.status, row.attempts, row.progress_pct) == ("pending", 1, 0)
    assert row.attempt_log[0]["error_class"] == "django.db.utils.IntegrityError"
    assert_nothing_left(data_dir)
    assert page.get("/ada/engine").status_code == 404

    commit_fails()
    make_due(ImportJob)
    run_imports()
    assert (fresh(job).status, fresh(job).attempts) == ("completed", 2)
    assert files(data_dir) == [f"{job.pk}.git"]
    assert page.get("/ada/engine").status_code == 200


def test_a_commit_that_fails_for_good_leaves_nothing(
    ada: User, git_server: GitServer, data_dir: Path, commit_fails
) -> None:
    gitrepos.small(git_server.repositories)
    job = enqueued(ada, source=git_server.url("small"), max_attempts=1)
    run_imports()
    assert fresh(job).status == "failed"
    assert_nothing_left(data_dir)


@pytest.mark.postgresql
def test_a_commit_that_the_database_breaks_off_is_made_again_with_the_files_in_place(
    ada: User, git_server: GitServer, data_dir: Path, worker: Start
) -> None:
    gitrepos.small(git_server.repositories)
    with connection.cursor() as cursor:
        # At the commit, this kills the connection: nobody can tell whether it was made.
        cursor.execute(
            "CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$; "
            "CREATE CONSTRAINT TRIGGER poison AFTER INSERT ON repositories_repository "
            "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION poison()"
        )
    try:
        job = enqueued(ada, source=git_server.url("small"))
        worker(ImportJob)
        wait_for(lambda: f"{job.pk}.git" in files(data_dir))
        assert Repository.objects.count() == 0
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION poison CASCADE")
    wait_for(has_status(job, "completed"))
    assert (fresh(job).attempts, Repository.objects.get().slug) == (1, "engine")
    assert files(data_dir) == [f"{job.pk}.git"]


def test_a_late_word_of_a_lost_attempt_touches_nothing_of_the_newer_one(
    ada: User, data_dir: Path
) -> None:
    job = enqueued(ada)
    zombie = claimed(job)
    late = imported(zombie)
    ImportJob.objects.rescue(dead=[zombie.worker])
    job = completed(fresh(job))

    zombie.discard(late)

    assert files(data_dir) == [f"{job.pk}.git"]
    assert (data_dir / "repositories" / f"{job.pk}.git" / "HEAD").exists()


@pytest.mark.parametrize("attempts", [1, 3])
def test_files_that_were_moved_but_not_committed_when_the_worker_died_do_not_stay(
    ada: User, data_dir: Path, attempts: int
) -> None:
    job = enqueued(ada, max_attempts=attempts)
    held = claimed(job)
    importing.publish(imported(held).path, job.pk)
    assert files(data_dir) == [f"{job.pk}.git"]
    age_lease(job)

    sweeper = Sweeper()
    wait_for(lambda: sweeper.sweep(ImportJob, expired=True))

    assert fresh(job).status == ("failed" if attempts == 1 else "pending")
    assert files(data_dir) == []


def test_the_end_of_a_lost_attempt_touches_nothing_of_the_attempt_after_it(
    ada: User, data_dir: Path
) -> None:
    zombie = claimed(enqueued(ada))
    late = imported(zombie)
    ImportJob.objects.rescue(dead=[zombie.worker])
    held = claimed(zombie)
    newer = imported(held)

    zombie.on_lost()
    assert (late.path.exists(), newer.path.exists()) == (False, True)
    held.complete(newer)
    zombie.on_lost()

    assert files(data_dir) == [f"{held.pk}.git"]


def test_two_imports_at_the_same_moment_stay_apart(
    ada: User, bob: User, git_server: GitServer, worker: Start, data_dir: Path
) -> None:
    gitrepos.small(git_server.repositories, "one", files={"a": b"1"})
    gitrepos.small(git_server.repositories, "two", files={"a": b"2"})
    jobs = [
        enqueued(user, name, source=git_server.url(name))
        for user in (ada, bob)
        for name in ("one", "two")
    ]
    worker(ImportJob, seats={"import": 4})
    wait_for(lambda: all(fresh(job).is_over for job in jobs))
    contents = {
        (str(one), gitrepos.git(one.path, "show", "HEAD:a")) for one in Repository.objects.all()
    }
    assert contents == {("ada/one", b"1"), ("ada/two", b"2"), ("bob/one", b"1"), ("bob/two", b"2")}
    assert len(files(data_dir)) == 4


def test_two_imports_run_at_once_for_a_person_and_two_from_a_host(ada: User, bob: User) -> None:
    a, b, c = (f"https://{name}.example.org/x" for name in "abc")
    for number, (person, source) in enumerate(
        [(ada, a), (ada, b), (ada, c), (bob, a), (bob, a), (bob, b), (bob, c)]
    ):
        enqueued(person, f"r{number}", source=source)

    claimed = ImportJob.objects.claim(9, worker="w", lease_seconds=30)

    # Ada has her two; Bob's first is the second from host a, his second must wait for that host.
    assert [job.slug for job in claimed] == ["r0", "r1", "r3", "r5"]
    claimed[0].fail(claimed[0].log_entry("failed", ended_at=None))
    assert [job.slug for job in ImportJob.objects.claim(9, worker="w", lease_seconds=30)] == ["r2"]


def test_a_page_says_that_imports_are_paused(ada: User, page: Client) -> None:
    job = enqueued(ada)
    pause("import", using=connection.alias)

    assert "Imports are paused" in page.get(job.get_absolute_url()).text

    resume("import", using=connection.alias)
    assert "Imports are paused" not in page.get(job.get_absolute_url()).text


def test_the_sweep_of_orphaned_files_is_a_schedule_that_runs(data_dir: Path) -> None:
    # None that has come due by the clock since it was made.
    Schedule.objects.all().delete()
    make_built_in_schedules(using=connection.alias)
    schedule = Schedule.objects.get(name="orphans")
    due = Now() - timedelta(seconds=1)
    Schedule.objects.filter(pk=schedule.pk).update(next_at=due)

    (task,) = Schedule.objects.tick()
    run_pending(TaskJob)

    task.refresh_from_db()
    assert (task.status, task.result) == ("completed", {"removed": []})


def test_what_git_said_of_a_failure_is_kept_and_shown(
    ada: User, git_server: GitServer, page: Client
) -> None:
    job = enqueued(ada, source=source_of(git_server, "status-403"))
    run_imports()
    assert "403" in fresh(job).log
    html = page.get(job.get_absolute_url()).text
    assert "What git and the server said" in html
    assert "403" in html
