"""`/import/<id>/progress`, Cancel and Retry: every state is told as it is."""

import re
import uuid
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.html import strip_tags

from accounts.models import User
from jobs.models import ImportJob
from repositories.models import Repository
from tests.jobs.conftest import (
    SOURCE,
    browser,
    claimed,
    completed,
    enqueued,
    failed,
    fresh,
    lost,
    retried,
)

pytestmark = pytest.mark.django_db

REFRESH = '<noscript><meta http-equiv="refresh" content="3"></noscript>'
ATTACK = "\"'><script>alert(1)</script>{{ 7 }}%(x)s&amp;"


def text_of(page: Client, job: ImportJob) -> str:
    """The words that the page has in its middle."""
    html = html_of(page, job)
    main = html[html.index("<section") : html.index("</section>")]
    return " ".join(unescape(strip_tags(main)).split())


def html_of(page: Client, job: ImportJob) -> str:
    answer = page.get(f"/import/{job.pk}/progress")
    assert answer.status_code == 200
    return str(answer.content.decode())


def is_live(html: str) -> bool:
    """Whether the page connects to the stream and, without JavaScript, loads itself again."""
    assert (REFRESH in html) == ("sse-connect" in html)
    return REFRESH in html


# Every state.


def test_a_pending_import_tells_its_place_in_the_queue(page: Client, ada: User, bob: User) -> None:
    first, second = enqueued(bob), enqueued(ada)
    others = [enqueued(bob, f"other{number}") for number in range(3)]

    assert "Number 2 in the queue" in text_of(page, second)
    claimed(first)
    text = text_of(page, second)
    assert "Next in line" in text
    assert "Cancel the import" in text
    assert is_live(html_of(page, second))
    assert "Number 4 in the queue" in text_of(browser(bob), others[2])


def test_a_place_counts_only_those_who_wait_now(page: Client, ada: User, bob: User) -> None:
    retried(enqueued(bob, "later"), delay=1000)
    enqueued(bob, "gone").cancel()
    failed(enqueued(bob, "failed"))
    assert "Next in line" in text_of(page, enqueued(ada))


def test_an_import_that_waits_for_another_attempt_tells_when_and_why(
    page: Client, ada: User
) -> None:
    job = retried(enqueued(ada), "The server did not answer in time.", delay=1000)
    text = text_of(page, job)
    assert f"Next attempt at {job.run_at:%H:%M:%S} UTC" in text
    assert "The server did not answer in time." in text
    assert "Attempt 2 of 3 is next." in text
    assert "Waits to retry" in text
    assert "in the queue" not in text
    assert is_live(html_of(page, job))


def test_a_running_import_tells_step_percent_bytes_rate_and_time(page: Client, ada: User) -> None:
    job = claimed(enqueued(ada))
    assert "Starting" in text_of(page, job)

    job.report(
        progress_pct=42,
        progress_step="Receiving objects",
        progress_done=1234,
        progress_total=5000,
        received_bytes=3 * 1024 * 1024,
        bytes_per_second=512 * 1024,
    )
    ImportJob.objects.filter(pk=job.pk).update(started_at=timezone.now() - timedelta(seconds=3725))

    text = text_of(page, job).replace("\xa0", " ")
    for words in ("Receiving objects", "42%", "1,234 of 5,000", "3.0 MB", "512.0 KB/s", "1:02:0"):
        assert words in text, words
    html = html_of(page, job)
    assert '<progress max="100" value="42"' in html
    assert is_live(html)


def test_a_running_import_that_is_to_stop_says_so_and_offers_no_second_cancel(
    page: Client, ada: User
) -> None:
    job = claimed(enqueued(ada))
    job.cancel()
    text = text_of(page, job)
    assert "Stopping the import" in text
    assert "Cancel the import" not in text
    assert is_live(html_of(page, job))


def test_a_completed_import_leads_to_its_repository(page: Client, ada: User) -> None:
    job = completed(enqueued(ada), notice="head_nowhere")
    html = html_of(page, job)
    assert '<a class="button primary big" href="/ada/engine">Open ada/engine</a>' in html
    assert '<progress max="100" value="100"' in html
    assert not is_live(html)
    text = text_of(page, job)
    assert "The source names no default branch that exists." in text
    assert "100%" in text
    assert "Retry" not in text
    assert "Cancel" not in text


def test_a_completed_import_whose_repository_was_deleted_says_so(page: Client, ada: User) -> None:
    job = completed(enqueued(ada))
    Repository.objects.all().delete()
    text = text_of(page, job)
    assert "The repository has been deleted since." in text
    assert "Open" not in text


def test_a_failed_import_tells_why_and_offers_retry(page: Client, ada: User) -> None:
    job = failed(enqueued(ada), "There is no repository at this address.")
    text = text_of(page, job)
    assert "The import failed" in text
    assert "There is no repository at this address." in text
    assert "Retry" in text
    assert "Forge tried" not in text
    assert not is_live(html_of(page, job))


def test_a_failed_import_tells_how_often_it_was_tried(page: Client, ada: User) -> None:
    job = enqueued(ada)
    retried(job, delay=0)
    assert "Forge tried 2 times." in text_of(page, failed(job))


def test_a_cancelled_import_says_that_nothing_is_left_and_offers_retry(
    page: Client, ada: User
) -> None:
    job = enqueued(ada)
    job.cancel()
    text = text_of(page, job)
    assert "The import was cancelled. Nothing is left of it." in text
    assert "Retry" in text
    assert not is_live(html_of(page, job))


# Attempts.


def test_a_rescued_import_says_which_attempt_it_is_and_starts_at_zero(
    page: Client, ada: User
) -> None:
    job = enqueued(ada)
    held = claimed(job)
    held.report(progress_pct=60, progress_step="Receiving objects", received_bytes=1000)
    ImportJob.objects.rescue(dead=[held.worker])

    waiting = html_of(page, job)
    assert "Attempt 2: the worker was lost." in waiting
    assert 'value="0"' in waiting
    claimed(job)
    running = html_of(page, job)
    assert "Attempt 2: the worker was lost." in running
    assert 'value="0"' in running
    assert "Receiving" not in text_of(page, job).replace("Received", "")


def test_a_second_attempt_tells_how_the_first_one_ended(page: Client, ada: User) -> None:
    assert "Attempt" not in text_of(page, claimed(enqueued(ada, "first")))
    job = enqueued(ada)
    retried(job, "The connection to the server was lost.", delay=0)
    claimed(job)
    text = text_of(page, job)
    assert "Attempt 2. The one before: The connection to the server was lost." in text


def test_an_import_that_was_handed_back_says_nothing_of_attempts(page: Client, ada: User) -> None:
    job = enqueued(ada)
    held = claimed(job)
    held.release(held.log_entry("released", ended_at=held.started_at))
    assert "ttempt" not in text_of(page, job)


@pytest.mark.parametrize("end", [failed, lost])
def test_a_first_attempt_after_retry_says_nothing_of_what_was_before(
    page: Client, ada: User, end: Any
) -> None:
    job = enqueued(ada, max_attempts=1)
    end(job)
    fresh(job).requeue()
    assert "ttempt" not in text_of(page, job)
    claimed(job)
    assert "ttempt" not in text_of(page, job)


# Hostile text.


def test_hostile_text_is_shown_as_text_in_every_state(page: Client, ada: User) -> None:
    states = {
        "failed": failed(enqueued(ada, "a"), ATTACK),
        "waiting": retried(enqueued(ada, "b"), ATTACK, delay=1000),
        "second": retried(enqueued(ada, "c"), ATTACK, delay=0),
        "running": claimed(enqueued(ada, "d")),
    }
    claimed(states["second"])
    states["running"].report(progress_step=ATTACK, progress_pct=1)
    ImportJob.objects.update(source_url=f"https://example.org/{ATTACK}")

    for name, job in states.items():
        html = html_of(page, job)
        assert "<script>alert" not in html, name
        assert text_of(page, job).count("<script>alert(1)</script>{{ 7 }}%(x)s&amp;") >= 1, name
    assert "<script>alert" not in page.get("/jobs").content.decode()


def test_an_error_in_several_lines_keeps_them(page: Client, ada: User) -> None:
    job = failed(enqueued(ada), "one\ntwo")
    assert "<p>one<br>two</p>" in html_of(page, job)


def test_a_number_of_jobs_does_not_make_the_page_ask_more(page: Client, ada: User) -> None:
    job = enqueued(ada)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            html_of(page, job)
        return len(captured)

    before = queries()
    for number in range(20):
        enqueued(ada, f"more{number}")
    assert queries() == before


# Whose it is.


def test_imports_of_others_are_not_there(ada: User, bob: User) -> None:
    page, job = browser(bob), enqueued(ada)
    for name in ("progress", "stream"):
        assert page.get(f"/import/{job.pk}/{name}").status_code == 404
    for name in ("cancel", "retry"):
        assert page.post(f"/import/{job.pk}/{name}").status_code == 404
    assert fresh(job).status == "pending"
    failed(job)
    assert page.post(f"/import/{job.pk}/retry").status_code == 404
    assert fresh(job).status == "failed"


def test_staff_that_is_no_superuser_sees_no_more_than_others(ada: User, bob: User) -> None:
    User.objects.filter(pk=bob.pk).update(is_staff=True)
    assert browser(bob).get(f"/import/{enqueued(ada).pk}/progress").status_code == 404


def test_a_superuser_sees_and_moves_the_imports_of_all(ada: User, root: User) -> None:
    page, job = browser(root), enqueued(ada)
    assert "ada/engine" in text_of(page, job)
    page.post(f"/import/{job.pk}/cancel")
    assert fresh(job).status == "cancelled"
    page.post(f"/import/{job.pk}/retry")
    assert (fresh(job).status, fresh(job).user) == ("pending", ada)


@pytest.mark.parametrize("name", ["progress", "stream", "cancel", "retry"])
def test_what_is_no_import_is_not_there(page: Client, name: str) -> None:
    send = page.get if name in ("progress", "stream") else page.post
    for pk in (uuid.uuid4(), "1", "x" * 5000, "%00", "..", f"{uuid.uuid4()}%0a"):
        assert send(f"/import/{pk}/{name}").status_code == 404


# Cancel and Retry.


def test_cancel_ends_a_waiting_import_and_leads_back_to_its_page(page: Client, ada: User) -> None:
    job = enqueued(ada)
    answer = page.post(f"/import/{job.pk}/cancel")
    assert answer["Location"] == f"/import/{job.pk}/progress"
    assert fresh(job).status == "cancelled"


def test_cancel_asks_a_running_import_to_end(page: Client, ada: User) -> None:
    job = claimed(enqueued(ada))
    page.post(f"/import/{job.pk}/cancel")
    page.post(f"/import/{job.pk}/cancel")
    job = fresh(job)
    assert (job.status, job.cancel_requested_at is None) == ("running", False)


@pytest.mark.parametrize("end", [completed, failed])
def test_cancel_of_what_is_over_is_answered_in_words(page: Client, ada: User, end: Any) -> None:
    job = end(enqueued(ada))
    answer = page.post(f"/import/{job.pk}/cancel", follow=True)
    assert "This job is over already: there is nothing to cancel." in answer.content.decode()
    assert fresh(job).status == job.status


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_retry_makes_the_same_import_wait_again_with_its_history(
    page: Client, ada: User, end: str
) -> None:
    job = enqueued(ada)
    failed(job) if end == "failed" else job.cancel()
    history = fresh(job).attempt_log

    answer = page.post(f"/import/{job.pk}/retry")

    assert answer["Location"] == f"/import/{job.pk}/progress"
    job = fresh(job)
    assert (job.status, job.attempts, job.error_message) == ("pending", 0, "")
    assert job.cancel_requested_at is None
    assert job.attempt_log == history
    assert ImportJob.objects.count() == 1


def test_retry_pressed_twice_makes_one_run(page: Client, ada: User) -> None:
    job = failed(enqueued(ada))
    page.post(f"/import/{job.pk}/retry")
    answer = page.post(f"/import/{job.pk}/retry", follow=True)
    assert "Only a failed or cancelled job can be run again." in answer.content.decode()
    assert fresh(job).status == "pending"


def test_retry_of_what_runs_or_is_completed_is_refused_in_words(page: Client, ada: User) -> None:
    running, done = claimed(enqueued(ada, "a")), completed(enqueued(ada, "b"))
    for job in (running, done):
        text = page.post(f"/import/{job.pk}/retry", follow=True).content.decode()
        assert re.search(r'<li class="message error" role="alert">[A-Z][^<]+\.</li>', text)
        assert fresh(job).status == job.status


def test_retry_is_refused_while_the_name_is_taken(page: Client, ada: User) -> None:
    job = failed(enqueued(ada))
    other = enqueued(ada, "ENGINE", source="https://example.org/other")
    answer = page.post(f"/import/{job.pk}/retry", follow=True)
    assert "The same work is already waiting or running." in answer.content.decode()

    completed(other)
    answer = page.post(f"/import/{job.pk}/retry", follow=True)
    assert "You have a repository of this name already." in answer.content.decode()
    assert fresh(job).status == "failed"


# The list.


def listed(page: Client, query: str = "") -> list[str]:
    """The names on a page of the list, from above."""
    html = page.get(f"/jobs{query}").content.decode()
    return re.findall(r'<span class="owner">ada/</span>([\w.-]+)</a>', html)


def test_the_list_has_my_jobs_and_the_newest_first(page: Client, ada: User, root: User) -> None:
    for name in ("one", "two", "three"):
        enqueued(ada, name)
    enqueued(root, "not-mine")
    text = page.get("/jobs").content.decode()
    assert listed(page) == ["three", "two", "one"]
    assert "not-mine" not in text
    assert SOURCE in text
    assert listed(browser(root)) == []


def test_the_list_of_nobody_says_that_there_are_none(page: Client) -> None:
    assert "No jobs yet" in page.get("/jobs").content.decode()


def test_the_list_tells_status_attempt_error_and_leads_to_the_page(page: Client, ada: User) -> None:
    job = retried(enqueued(ada, "again"), delay=1000)
    failed(enqueued(ada, "broken"), "There is no repository at this address.")
    claimed(enqueued(ada, "now")).report(progress_pct=37)
    text = page.get("/jobs").content.decode()
    assert f'href="/import/{job.pk}/progress"' in text
    for words in ("Waits to retry", "Failed", "37%", "1 of 3", "There is no repository"):
        assert words in text, words


def test_the_list_is_cut_into_pages(page: Client, ada: User) -> None:
    for number in range(65):
        enqueued(ada, f"r{number}")
    names = [listed(page, f"?page={number}") for number in (1, 2, 3)]
    assert [len(part) for part in names] == [30, 30, 5]
    assert [*names[0], *names[1], *names[2]] == [f"r{number}" for number in range(64, -1, -1)]
    assert listed(page) == names[0]
    for odd in ("0", "-1", "x", "99999999999999999999", "%00", "2.5", ""):
        assert len(listed(page, f"?page={odd}")) in (5, 30)


def test_the_list_asks_no_more_for_more_jobs(page: Client, ada: User) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            page.get("/jobs")
        return len(captured)

    enqueued(ada)
    before = queries()
    for number in range(6):
        job = enqueued(ada, f"r{number}")
        [claimed, completed, failed, lost][number % 4](job)
    assert queries() == before
