"""The outbox: what a machine under development would have mailed, printed, kept and shown there."""

import email
import email.policy
import os
import uuid
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from jobs import outbox
from jobs.checks import check_delivery
from jobs.engine.testing import run_pending
from jobs.models import EmailJob
from tests.forge_process import ROOT, run
from tests.jobs.mailing import fresh, queued, sent

pytestmark = [
    pytest.mark.django_db,
    # ServeStatic says so whenever DEBUG is on.
    pytest.mark.filterwarnings("ignore:Django checks for ServeStatic are disabled"),
]
LINK = "http://127.0.0.1:8000/sign-in/" + "t" * 90


@pytest.fixture(autouse=True)
def _outbox(settings: Any) -> None:
    settings.MAILERS = queued({"BACKEND": "jobs.outbox.OutboxBackend"})
    settings.DEBUG = True


def delivered(*to: str, **options: Any) -> EmailJob:
    job = sent(*to, **options)
    run_pending(EmailJob)
    job = fresh(job)
    assert job.status == "completed", job.error_message
    return job


def page(path: str = "/outbox", **options: Any) -> str:
    answer = Client(**options).get(path)
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_mail_is_printed_to_be_read_and_kept_as_it_is_carried(
    capsys: pytest.CaptureFixture[str], data_dir: Path
) -> None:
    job = delivered(bcc=["eve@example.org"], subject="Grüße", body=f"Öffnen: {LINK}\n")
    printed = capsys.readouterr().out
    assert "Subject: Grüße" in printed
    assert f"Öffnen: {LINK}\n" in printed
    kept = data_dir / "outbox" / f"{job.pk}.eml"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert b"Bcc: eve@example.org" in kept.read_bytes()
    assert job.provider_answer == f"Kept in {kept.name}."


def test_without_debug_nothing_that_a_mail_says_is_printed(
    settings: Any, capsys: pytest.CaptureFixture[str], data_dir: Path
) -> None:
    """Where mail is printed by accident, what is printed is a log."""
    settings.DEBUG = False
    job = delivered(
        "Zoë <zoe@example.org>",
        bcc=["eve@example.org"],
        subject="Grüße",
        body=f"Öffnen: {LINK}\n",
        alternatives=[(f'<a href="{LINK}">', "text/html")],
        headers={"X-Link": LINK},
        attachments=[("code.txt", LINK, "text/plain")],
    )
    kept = data_dir / "outbox" / f"{job.pk}.eml"
    printed = capsys.readouterr().out
    assert printed == f"A mail to Zoë <zoe@example.org>, eve@example.org is kept in {kept}: Grüße\n"
    # The link is in the file, for whom the machine belongs to.
    mime: Any = email.message_from_bytes(kept.read_bytes(), policy=email.policy.default)
    assert LINK in mime.get_body(("plain",)).get_content()


def test_nobody_else_on_the_machine_reads_the_outbox(data_dir: Path) -> None:
    """Whoever made the directory, as a backup that was put back."""
    place = data_dir / "outbox"
    for made in (False, True):
        if made:
            place.chmod(0o755)
        job = delivered()
        assert place.stat().st_mode & 0o777 == 0o700
        assert (place / f"{job.pk}.eml").stat().st_mode & 0o777 == 0o600


def test_the_check_tells_that_no_mail_leaves(settings: Any) -> None:
    assert not check_delivery()
    settings.DEBUG = False
    (told,) = check_delivery()
    assert told.id == "jobs.W001"
    assert "POSTMARK_SERVER_TOKEN or SMTP_URL" in str(told.hint)
    smtp = {"BACKEND": "jobs.smtp.SmtpBackend", "OPTIONS": {"host": "mail.example.org"}}
    settings.MAILERS = queued(smtp)
    assert not check_delivery()


def test_manage_check_deploy_says_so_of_a_real_project(tmp_path: Path) -> None:
    told = {}
    for name, more in (
        ("none", {}),
        ("smtp", {"SMTP_URL": "smtp://localhost"}),
        ("debug", {"DEBUG": "on"}),
    ):
        done = run(ROOT / "manage.py", "check", "--deploy", FORGE_DATA_DIR=str(tmp_path), **more)
        assert done.returncode == 0, done.stderr
        told[name] = "jobs.W001" in done.stderr
    assert told == {"none": True, "smtp": False, "debug": False}


def test_the_page_lists_mails_newest_first_and_shows_each_with_its_links() -> None:
    assert "No mail yet" in page()
    first = delivered(subject="First")
    second = delivered(
        subject="Second",
        body=f"Open {LINK} now.\n",
        alternatives=[("<p>the page</p>", "text/html")],
        attachments=[("notes.txt", "x", "text/plain")],
    )
    for age, job in enumerate((second, first)):
        os.utime(outbox.root() / f"{job.pk}.eml", (1e9 - age, 1e9 - age))
    text = page()
    assert text.index("Second") < text.index("First")
    text = page(f"/outbox/{second.pk}")
    assert f'<a href="{LINK}"' in text
    assert "notes.txt" in text and "ada@example.org" in text
    assert page(f"/outbox/{second.pk}/html").strip() == "<p>the page</p>"


def test_a_mail_can_do_nothing_on_its_page() -> None:
    job = delivered(
        subject="<script>alert(1)</script>",
        body="<script>alert(2)</script> javascript:alert(3)",
        alternatives=[("<script>alert(4)</script>", "text/html")],
    )
    assert "<script>alert" not in page() + page(f"/outbox/{job.pk}")
    answer = Client().get(f"/outbox/{job.pk}/html")
    policy = answer["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script-src" not in policy


def test_there_is_no_outbox_without_debug(settings: Any) -> None:
    job = delivered()
    settings.DEBUG = False
    for path in ("/outbox", f"/outbox/{job.pk}", f"/outbox/{job.pk}/html"):
        assert Client().get(path).status_code == 404


@pytest.mark.parametrize(
    "where",
    [
        {"REMOTE_ADDR": "192.0.2.7"},
        {"REMOTE_ADDR": "127.0.0.1", "HTTP_X_FORWARDED_FOR": "192.0.2.7"},
        {"REMOTE_ADDR": "127.0.0.1", "HTTP_FORWARDED": "for=192.0.2.7"},
    ],
)
def test_only_this_machine_sees_the_outbox(where: dict[str, str]) -> None:
    job = delivered()
    for path in ("/outbox", f"/outbox/{job.pk}", f"/outbox/{job.pk}/html"):
        assert Client(**where).get(path).status_code == 404


def test_a_mail_that_is_not_there_is_not_found() -> None:
    assert Client().get(f"/outbox/{uuid.uuid4()}").status_code == 404


def test_old_mails_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "KEPT", 3)
    for number in range(5):
        delivered(subject=f"Mail {number}")
    assert sorted(one.subject for one in outbox.kept()) == ["Mail 2", "Mail 3", "Mail 4"]


def test_a_file_that_is_no_mail_of_ours_is_passed_over() -> None:
    delivered()
    (outbox.root() / "stray.eml").write_text("x")
    assert len(outbox.kept()) == 1
