"""People are told by mail what became of their imports: once, in their language, if they want it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import transaction
from django.db.models.functions import Now
from django.test import Client
from django.utils import translation

from accounts.models import User
from forge.demo import enqueue_demo
from jobs.engine.execution import Outcome, Run
from jobs.engine.finishing import write
from jobs.engine.lifecycle import LostClaim
from jobs.engine.retry import Decision
from jobs.engine.worker import Worker
from jobs.models import EmailJob, ImportJob
from repositories.models import Repository
from tests import gitrepos
from tests.githttp import GitServer
from tests.jobs.conftest import (
    claimed,
    completed,
    enqueued,
    failed,
    fresh,
    imported,
    lost,
    retried,
    source_of,
)
from tests.waiting import wait_for
from tests.workers import (
    HEEDING_SIGNALS,
    ROOT,
    age_lease,
    command_environment,
    command_line,
    run_due,
    test_database_url,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("queue")]


@pytest.fixture(autouse=True)
def _own_language() -> Iterator[None]:
    yield
    translation.deactivate()


@pytest.fixture
def french(ada: User) -> User:
    User.objects.update(language="fr")
    ada.refresh_from_db()
    return ada


def mails() -> list[EmailJob]:
    return list(EmailJob.objects.order_by("id"))


def mail() -> EmailJob:
    (only,) = mails()
    return only


def told() -> list[str]:
    """Which mails there are, in their order."""
    return [one.tags[0] for one in mails()]


# What the mails say.


def test_a_completed_import_is_told_with_its_facts(ada: User) -> None:
    job = enqueued(ada)
    held = claimed(job)
    ImportJob.objects.filter(pk=job.pk).update(started_at=held.created_at)
    result = imported(held, notice="shallow")
    facts = {"branch_count": 1234, "tag_count": 56, "size_bytes": 7_000_000}
    held.complete(type(result)(**{**vars(result), **facts}))

    sent = mail()
    assert (sent.to, sent.subject) == (["ada@example.org"], "Import completed: ada/engine")
    for words in (
        "ada/engine is here:\n\nhttp://127.0.0.1:8000/ada/engine\n",
        "Imported from: https://example.org/ada/engine.git\n",
        "Branches: 1,234\n",
        "Tags: 56\n",
        "Size: 6.7\xa0MB\n",
        "Time taken: 0:00:0",
        "The source holds no older history, so it is missing here too.\n",
    ):
        assert words in sent.text
    for words in ('href="http://127.0.0.1:8000/ada/engine"', ">1,234<", ">56<", ">6.7\xa0MB<"):
        assert words in sent.html
    assert (sent.status, sent.mailer, sent.priority) == ("pending", "default", 0)


def test_the_time_taken_is_between_start_and_end_on_the_databases_clock(ada: User) -> None:
    held = claimed(enqueued(ada))
    ImportJob.objects.update(started_at=Now() - timedelta(hours=1, minutes=2, seconds=3))
    held.complete(imported(held))
    assert "Time taken: 1:02:0" in mail().text


def test_a_failed_import_is_told_with_its_cause_and_the_page_that_retries(ada: User) -> None:
    job = failed(enqueued(ada), "The source is <gone>.")

    sent = mail()
    link = f"http://127.0.0.1:8000/import/{job.pk}/progress"
    assert (sent.to, sent.subject) == (["ada@example.org"], "Import failed: ada/engine")
    assert "The import of ada/engine has failed:\n\nThe source is <gone>.\n" in sent.text
    assert f"\n{link}\n" in sent.text
    assert "The source is &lt;gone&gt;." in sent.html
    assert f'href="{link}"' in sent.html


def test_the_link_leads_to_a_page_with_a_button_that_retries(page: Client, ada: User) -> None:
    job = failed(enqueued(ada))
    answer = page.get(f"/import/{job.pk}/progress")
    assert 'id="retry"' in answer.content.decode()


def test_the_reader_is_written_to_in_their_language(french: User) -> None:
    failed(enqueued(french), "The disk of this server is full.")
    completed(enqueued(french, "second"))

    failure, success = mails()
    assert failure.subject == "Échec de l’import\xa0: ada/engine"
    assert "Le disque de ce serveur est plein." in failure.text
    assert "Le disque de ce serveur est plein." in failure.html
    assert '<html lang="fr">' in failure.html
    assert success.subject == "Import terminé\xa0: ada/second"
    assert "Taille\xa0: 21\xa0octets\n" in success.text
    assert translation.get_language() == "en"


def test_mail_programs_learn_how_to_switch_it_off(ada: User, client: Client) -> None:
    failed(enqueued(ada))

    headers = dict(mail().headers)
    assert headers["Auto-Submitted"] == "auto-generated"
    assert headers["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    address = headers["List-Unsubscribe"]
    assert address.startswith("<http://127.0.0.1:8000/preferences/mail/")
    assert address.strip("<>") in mail().text
    assert address.strip("<>") in mail().html

    answer = client.post(
        address.strip("<>").removeprefix("http://127.0.0.1:8000"),
        {"List-Unsubscribe": "One-Click"},
    )
    assert answer.status_code == 200
    ada.refresh_from_db()
    assert (ada.mail_failed, ada.mail_completed) == (False, True)


# When there is one, and when there is none.


def test_a_mail_is_made_by_the_transaction_that_ends_the_job(ada: User) -> None:
    held = claimed(enqueued(ada))
    ends: list[Callable[[], None]] = [
        lambda: held.complete(imported(held)),
        lambda: held.fail(held.log_entry("failed", ended_at=None, message="no luck")),
    ]
    for end in ends:
        with pytest.raises(RuntimeError), transaction.atomic():
            end()
            assert len(mails()) == 1
            raise RuntimeError("the commit fails")
        assert mails() == []
        assert (fresh(held).status, fresh(held).told) == ("running", "")


def test_nothing_is_told_of_what_is_not_over_and_of_what_the_person_did(ada: User) -> None:
    retried(enqueued(ada), delay=5)
    lost(enqueued(ada, "second"))
    enqueued(ada, "third").cancel()
    held = claimed(enqueued(ada, "fourth"))
    held.cancel()
    held.cancelled(held.log_entry("cancelled", ended_at=None))
    assert mails() == []


def test_a_worker_lost_in_the_last_attempt_is_a_failure_that_is_told(french: User) -> None:
    lost(enqueued(french, max_attempts=1))
    assert told() == ["import_failed"]
    assert "Le worker est mort pendant l’exécution." in mail().text


def test_a_lost_claim_tells_nobody(ada: User) -> None:
    zombie = claimed(enqueued(ada))
    age_lease(zombie)
    ImportJob.objects.rescue()
    with pytest.raises(LostClaim):
        zombie.fail(zombie.log_entry("failed", ended_at=None, message="too late"))
    with pytest.raises(LostClaim):
        zombie.complete(imported(zombie))
    assert mails() == []


def test_an_end_is_told_once_however_often_it_is_reached(ada: User) -> None:
    job = failed(enqueued(ada))
    for _again in range(2):
        job.requeue()
        job = failed(job)
    assert told() == ["import_failed"]

    job.requeue()
    completed(job)
    assert told() == ["import_failed", "import_completed"]


def test_a_taken_name_is_told_as_a_failure_alone(ada: User) -> None:
    job = enqueued(ada)
    held = claimed(job)
    completed(enqueued(ada, "other"))
    Repository.objects.filter(slug="other").update(slug="engine")
    EmailJob.objects.all().delete()

    write(Outcome(Run(held, lease_ends=0), Decision("complete"), imported(held)))

    assert fresh(job).status == "failed"
    assert told() == ["import_failed"]
    assert "You have a repository of this name already." in mail().text


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ({"mail_completed": False}, ["import_failed"]),
        ({"mail_failed": False}, ["import_completed"]),
        ({"is_active": False}, []),
    ],
    ids=str,
)
def test_who_does_not_want_a_mail_gets_none(
    ada: User, choices: dict[str, Any], expected: list[str]
) -> None:
    User.objects.update(**choices)
    failed(enqueued(ada))
    completed(enqueued(ada, "second"))
    assert told() == expected


def test_who_wants_mails_later_is_told_of_a_later_end(ada: User) -> None:
    User.objects.update(mail_failed=False)
    job = failed(enqueued(ada))
    User.objects.update(mail_failed=True)
    job.requeue()
    failed(job)
    assert told() == ["import_failed"]


def test_a_mail_that_cannot_be_made_keeps_no_job_from_its_end(
    ada: User, caplog: pytest.LogCaptureFixture
) -> None:
    User.objects.update(email="no address")
    assert failed(enqueued(ada)).status == "failed"
    job = completed(enqueued(ada, "second"))
    assert job.status == "completed"
    assert job.repository is not None and job.repository.path.is_dir()
    assert mails() == []
    assert not ImportJob.objects.exclude(told="").exists()
    assert "import_failed: nobody is told of it by mail" in caplog.text
    assert "import_completed: nobody is told of it by mail" in caplog.text


def test_nobody_is_mailed_of_the_demo(tmp_path: Path) -> None:
    enqueue_demo(gitrepos.small(tmp_path))
    completed(ImportJob.objects.get())
    assert mails() == []


# Whoever waits in front of it.


def test_whoever_waits_in_front_of_a_terminal_gets_no_mail(ada: User, tmp_path: Path) -> None:
    source = str(gitrepos.small(tmp_path))
    call_command("importrepo", source, "--owner", "ada", "--name", "later", "--no-wait")
    assert not ImportJob.objects.get(slug="later").quiet
    completed(ImportJob.objects.get(slug="later"))
    assert told() == ["import_completed"]

    failed(enqueued(ada, "watched", quiet=True))
    completed(enqueued(ada, "watched-too", quiet=True))
    assert told() == ["import_completed"]


def test_what_was_retried_on_its_page_is_told_again(ada: User) -> None:
    job = failed(enqueued(ada, quiet=True))
    job.requeue()
    completed(job)
    assert told() == ["import_completed"]


def test_what_a_page_joins_is_told_also_if_a_command_waits_for_it(ada: User) -> None:
    asked = {"source_url": "https://example.org/a.git", "name": "a", "visibility": "private"}
    first = enqueued(ada, "a", source=asked["source_url"], quiet=True)
    page = Client()
    page.force_login(ada)
    assert page.post("/import", asked).status_code == 302
    completed(ImportJob.objects.get(pk=first.pk))
    assert told() == ["import_completed"]


def test_a_path_is_one_line_that_reads_as_it_is_written(ada: User) -> None:
    failed(enqueued(ada, source="/srv/a\nLink: https://evil.example/\u202ekcab", local=True))
    shown = "/srv/a\ufffdLink: https://evil.example/\ufffdkcab"
    for text in (mail().text, mail().html):
        assert shown in text


def test_a_time_limit_is_told_in_the_readers_language(ada: User) -> None:
    job = enqueued(ada, "slow", max_running_seconds=2)
    (held,) = ImportJob.objects.claim(1, worker="w", lease_seconds=30)
    message = "Took longer than the limit of 2 seconds."
    held.fail(held.log_entry("timed out", ended_at=None, message=message))
    job = ImportJob.objects.get(pk=job.pk)
    assert (job.error_message, job.reason) == (message, message)
    with translation.override("fr"):
        assert job.reason == "La limite de 2 secondes a été dépassée."


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.django_db(transaction=True)
def test_a_command_that_waits_is_quiet_until_it_is_left(
    ada: User, git_server: GitServer, worker: Callable[..., Worker], how: signal.Signals
) -> None:
    worker(ImportJob)
    command = subprocess.Popen(
        [*HEEDING_SIGNALS, *command_line("importrepo"), source_of(git_server), "--owner", "ada"],
        env=command_environment(FORGE_IMPORT_ALLOWED_NETWORKS="127.0.0.1/32"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert git_server.reached.wait(30)
        assert ImportJob.objects.get().quiet
        command.send_signal(how)
        _out, said = command.communicate(timeout=30)
        assert "goes on without this command" in said
    finally:
        command.kill()
        command.wait()
    git_server.go_on.set()
    wait_for(lambda: ImportJob.objects.get().status == "completed")
    assert told() == ["import_completed"]


# With real workers.


@pytest.mark.django_db(transaction=True)
def test_a_worker_tells_and_delivers(
    ada: User, git_server: GitServer, settings: Any, mailoutbox: list[Any]
) -> None:
    settings.FORGE_IMPORT_ALLOWED_NETWORKS = [ip_network("127.0.0.1/32")]
    gitrepos.small(git_server.repositories, "good")
    enqueued(ada, "good", source=git_server.url("good"))
    enqueued(ada, "bad", source=git_server.url("missing"))
    run_due(ImportJob)
    assert sorted(told()) == ["import_completed", "import_failed"]

    run_due(EmailJob)

    subjects = sorted(message.subject for message in mailoutbox)
    assert subjects == ["Import completed: ada/good", "Import failed: ada/bad"]
    assert all("List-Unsubscribe" in message.extra_headers for message in mailoutbox)


@pytest.mark.django_db(transaction=True)
def test_with_a_database_of_the_jobs_own_the_mail_goes_there(ada: User, tmp_path: Path) -> None:
    jobs_database = f"sqlite:///{tmp_path / 'jobs.sqlite3'}"
    source = gitrepos.small(tmp_path)

    def manage(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, ROOT / "manage.py", *arguments],
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "forge.settings",
                "DATABASE_URL": test_database_url(),
                "JOBS_DATABASE_URL": jobs_database,
                "FORGE_DATA_DIR": str(tmp_path / "data"),
            },
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    manage("migrate", "--database", "jobs", "-v0")
    manage("importrepo", str(source), "--owner", "ada", "--name", "engine", "--no-wait")
    manage("runworker", "--kinds", "import", "--burst")

    listed = "from jobs.models import EmailJob; print(*EmailJob.objects.values_list('subject'))"
    assert manage("shell", "-v0", "-c", listed) == "('Import completed: ada/engine',)"
    assert mails() == []
