"""Mails in the admin: who was written to and what became of it; the text only to whom it is due."""

import re
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from jobs.engine.testing import assert_enqueued, run_pending
from jobs.models import EmailJob
from tests.jobs.conftest import browser
from tests.jobs.mailing import fresh, sent
from tests.jobs.test_job_admin import staff
from tests.jobs.test_mail_queue import expiring
from tests.postmark import Postmark

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("queue")]
LIST = "/admin/jobs/emailjob/"


@pytest.fixture
def desk(root: User) -> Client:
    return browser(root)


def listed(desk: Client, **query: str) -> list[str]:
    answer = desk.get(LIST, query)
    assert answer.status_code == 200
    return re.findall(r'class="field-subject">([^<]+)</td>', answer.content.decode())


def shown(desk: Client, job: EmailJob) -> str:
    answer = desk.get(f"{LIST}{job.pk}/change/")
    assert answer.status_code == 200
    return unescape(answer.content.decode())


def press(desk: Client, action: str, job: EmailJob) -> str:
    chosen = {"action": action, "_selected_action": [str(job.pk)]}
    return unescape(desk.post(LIST, chosen, follow=True).content.decode())


def test_the_list_has_recipient_subject_and_the_providers_answer(
    desk: Client, by_postmark: Postmark
) -> None:
    sent("Ada <ada@example.org>", "bob@example.org", subject="One")
    run_pending(EmailJob)
    text = unescape(desk.get(LIST).content.decode())
    assert "Ada <ada@example.org> +1" in text
    assert re.search(r'class="field-answer">OK<', text)
    assert listed(desk) == ["One"]


def test_the_list_is_searched_by_every_recipient_and_by_subject(desk: Client) -> None:
    sent("ada@example.org", subject="One")
    sent("bob@example.org", cc=["zoe@example.net"], bcc=["eve@example.com"], subject="Two")
    for words in ("bob@", "zoe@example.net", "eve@example.com", "Two"):
        assert listed(desk, q=words) == ["Two"], words
    assert listed(desk, q="nobody") == []
    assert sorted(listed(desk, status__exact="pending")) == ["One", "Two"]


def reading(desk: Client, **action: Any) -> list[str]:
    """The statements by which the list, or an action on all of it, reads mails."""
    with CaptureQueriesContext(connection) as queries:
        answer = desk.post(LIST, action) if action else desk.get(LIST)
    assert answer.status_code == (302 if action else 200)
    told = [query["sql"] for query in queries]
    return [sql for sql in told if re.match(r'SELECT .*"subject".* FROM "jobs_emailjob"', sql)]


def test_the_list_reads_no_text_and_no_mail_by_itself(desk: Client) -> None:
    jobs = [sent(subject=f"Mail {number}") for number in range(3)]
    for job in jobs:
        job.cancel()
    chosen = {"action": "retry", "_selected_action": [str(job.pk) for job in jobs]}

    for statements in (reading(desk), reading(desk, **chosen)):
        (statement,) = statements
        for column in ("text", "html", "headers", "attachments", "attempt_log"):
            assert f'"jobs_emailjob"."{column}"' not in statement
    assert {fresh(job).status for job in jobs} == {"pending"}


def test_the_text_is_shown_only_with_the_permission_for_it(desk: Client) -> None:
    job = sent(body="the text <b>", alternatives=[("<p>the page</p>", "text/html")])
    whole = shown(desk, job)
    assert "the text <b>" in whole and "<p>the page</p>" in whole
    clerk = staff("view_emailjob", "change_emailjob")
    for text in (shown(clerk, job), clerk.get(LIST).content.decode()):
        assert "the text" not in text and "the page" not in text
    assert "ada@example.org" in shown(clerk, job)


def test_who_has_the_permission_for_texts_sees_them(ada: User) -> None:
    job = sent(body="the text")
    assert "the text" in shown(staff("view_emailjob", "view_email_body"), job)


def test_a_secret_is_shown_to_nobody(desk: Client) -> None:
    job = sent(body="secret-link", headers=expiring(minutes=15) | {"X-Code": "secret-code"})
    page = shown(desk, job)
    assert "secret-" not in page
    assert "This mail holds a secret" in page


def test_an_erased_text_is_told_of(desk: Client) -> None:
    job = sent()
    run_pending(EmailJob)
    assert "was erased when the mail was delivered" in shown(desk, job)


def test_hostile_mails_are_text(desk: Client) -> None:
    job = sent(
        '"<script>alert(1)</script>" <ada@example.org>',
        subject="<script>alert(2)</script>",
        body="</pre><script>alert(3)</script>",
        attachments=[("<script>alert(4)</script>", b"x", "image/png")],
    )
    for address in (LIST, f"{LIST}{job.pk}/change/"):
        assert b"<script>alert" not in desk.get(address).content


def test_retry_sends_a_failed_mail_again(
    desk: Client, by_postmark: Postmark, mailoutbox: list[Any]
) -> None:
    by_postmark.inactive = {"ada@example.org"}
    job = sent(body="the text")
    run_pending(EmailJob)
    assert "code 406" in shown(desk, job)
    by_postmark.inactive = set()
    assert "1 job runs again." in press(desk, "retry", job)
    run_pending(EmailJob)
    assert fresh(job).status == "completed"
    assert [mail["TextBody"] for mail in by_postmark.mails] == ["the text"]


def test_retry_of_a_secret_mail_is_refused_in_words(desk: Client) -> None:
    job = sent(headers=expiring(minutes=15))
    job.cancel()
    assert "cannot be sent again" in press(desk, "retry", job)
    assert fresh(job).status == "cancelled"


# The test mail.


def test_a_test_mail_goes_to_who_pressed_the_button(desk: Client, root: User) -> None:
    assert "Send a test mail" in desk.get(LIST).content.decode()
    answer = desk.post(f"{LIST}test/", follow=True)
    assert f"A test mail to {root.email} is queued" in answer.content.decode()
    (job,) = assert_enqueued(EmailJob, to=[root.email], count=1)
    assert job.subject == "A test mail from Forge"


def test_a_test_mail_needs_a_button_that_is_pressed(desk: Client) -> None:
    assert desk.get(f"{LIST}test/").status_code == 405
    careful = Client(enforce_csrf_checks=True)
    careful.cookies = desk.cookies
    assert careful.post(f"{LIST}test/").status_code == 403
    assert not EmailJob.objects.exists()


def test_who_may_only_look_sends_no_test_mail(page: Client) -> None:
    desk = staff("view_emailjob", "view_email_body")
    assert "Send a test mail" not in desk.get(LIST).content.decode()
    assert desk.post(f"{LIST}test/").status_code == 403
    assert page.post(f"{LIST}test/").status_code == 302
    assert not EmailJob.objects.exists()


def test_a_test_mail_that_cannot_be_sent_is_told(desk: Client, root: User) -> None:
    User.objects.filter(pk=root.pk).update(email="nobody")
    answer = desk.post(f"{LIST}test/", follow=True)
    assert "is no e-mail address" in answer.content.decode()
    assert not EmailJob.objects.exists()


@pytest.mark.parametrize(
    "lookup", ["text__contains", "html__regex", "headers__icontains", "attempt_log__icontains"]
)
def test_the_list_cannot_be_asked_for_what_its_reader_may_not_see(lookup: str) -> None:
    clerk = staff("view_emailjob")
    job = sent("ada@example.org", subject="One")
    answer = clerk.get(LIST, {"id__exact": str(job.pk), lookup: "a"})
    assert answer.status_code == 400
    assert clerk.get(LIST, {"status__exact": "pending"}).status_code == 200
