"""The outbox: what a machine under development would have mailed, printed, kept and shown there."""

import os
import uuid
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from jobs import outbox
from jobs.engine.testing import run_pending
from jobs.models import EmailJob
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
