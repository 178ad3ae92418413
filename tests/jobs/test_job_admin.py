"""Jobs in the admin: everything is seen, nothing is changed but by Retry and Cancel."""

import re
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from jobs.engine.lifecycle import LostClaim
from jobs.models import ImportJob
from tests.jobs.conftest import (
    browser,
    claimed,
    completed,
    enqueued,
    failed,
    fresh,
    lost,
    person,
    retried,
)

pytestmark = pytest.mark.django_db
LIST = "/admin/jobs/importjob/"


@pytest.fixture
def desk(root: User) -> Client:
    """The administrator's browser."""
    return browser(root)


def staff(*permissions: str) -> Client:
    user = person("clerk", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    assert user.user_permissions.count() == len(permissions)
    return browser(user)


def listed(desk: Client, **query: str) -> list[str]:
    answer = desk.get(LIST, query)
    assert answer.status_code == 200
    return re.findall(r"field-name[^>]*><a[^>]*>([^<]+)</a>", answer.content.decode())


def press(desk: Client, action: str, *jobs: ImportJob, **more: Any) -> list[str]:
    """Select jobs, press an action; returns what the page says of it."""
    chosen = {"action": action, "_selected_action": [str(job.pk) for job in jobs], **more}
    answer = desk.post(LIST, chosen, follow=True)
    assert answer.status_code == 200
    found = re.findall(r'<li class="(?:\w+)">([^<]+)</li>', answer.content.decode())
    return [unescape(text) for text in found]


# The list.


def test_the_list_has_the_jobs_of_all_and_the_newest_first(
    desk: Client, ada: User, bob: User
) -> None:
    enqueued(ada, "one")
    enqueued(bob, "two")
    assert listed(desk) == ["bob/two", "ada/one"]


def test_the_list_is_filtered_and_searched(desk: Client, ada: User, bob: User) -> None:
    failed(enqueued(ada, "one"), "There is no repository at this address.")
    enqueued(bob, "two", source="https://example.net/lace", visibility="public", local=True)
    assert listed(desk, status__exact="failed") == ["ada/one"]
    assert listed(desk, status__exact="pending") == ["bob/two"]
    assert listed(desk, visibility__exact="public") == ["bob/two"]
    assert listed(desk, local__exact="1") == ["bob/two"]
    for words in ("bob", "bob@example.org", "example.net/lace", "two"):
        assert listed(desk, q=words) == ["bob/two"], words
    assert listed(desk, q="no repository") == ["ada/one"]
    assert listed(desk, q="nothing of the kind") == []
    assert desk.get(LIST, {"q": "\x00%'"}).status_code == 200
    assert len(listed(desk, created_at__gte="2000-01-01 00:00:00+00:00")) == 2


def test_the_list_asks_no_more_for_more_jobs(desk: Client, ada: User) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            listed(desk)
        return len(captured)

    enqueued(ada)
    before = queries()
    for number in range(10):
        enqueued(ada, f"r{number}")
    assert queries() == before


# One job.


def test_a_job_is_shown_whole_and_without_a_way_to_change_it(desk: Client, ada: User) -> None:
    job = retried(enqueued(ada), "<script>alert(1)</script>\nsecond line", delay=1000)
    html = desk.get(f"{LIST}{job.pk}/change/").content.decode()
    text = unescape(html)
    assert "<script>alert" not in html
    assert "failed" in text[text.index("field-attempts_told") :]
    assert "second line" in text
    assert job.source_url in text
    form = html[
        html.index('id="importjob_form"') : html.index("</form>", html.index("importjob_form"))
    ]
    assert not re.search(r'name="_(save|addanother|continue)"', form)
    assert not re.search(r'<(input|select|textarea)[^>]*name="(?!csrf)', form)


@pytest.mark.parametrize("state", [claimed, completed, failed, lost])
def test_a_job_of_every_state_is_shown(desk: Client, ada: User, state: Any) -> None:
    job = state(enqueued(ada))
    assert desk.get(f"{LIST}{job.pk}/change/").status_code == 200
    assert desk.get(f"{LIST}{job.pk}/history/").status_code == 200


def test_nothing_can_be_added_changed_or_deleted(desk: Client, ada: User) -> None:
    job = enqueued(ada)
    before = ImportJob.objects.filter(pk=job.pk).values().get()
    assert desk.get(f"{LIST}add/").status_code == 403
    assert desk.post(f"{LIST}add/", {"slug": "x"}).status_code == 403
    assert desk.post(f"{LIST}{job.pk}/change/", {"status": "completed"}).status_code == 403
    assert desk.get(f"{LIST}{job.pk}/delete/").status_code == 403
    assert desk.post(f"{LIST}{job.pk}/delete/", {"post": "yes"}).status_code == 403
    press(desk, "delete_selected", job, post="yes")
    assert ImportJob.objects.filter(pk=job.pk).values().get() == before


def test_a_job_that_is_not_there_is_answered_in_words(desk: Client) -> None:
    for pk in ("01a22d81-5db4-7097-97f9-e18fc271fa80", "x", "%00"):
        answer = desk.get(f"{LIST}{pk}/change/", follow=True)
        assert answer.status_code == 200
        assert "exist" in answer.content.decode()


# Retry and Cancel.


def test_retry_runs_failed_and_cancelled_jobs_again_and_keeps_their_history(
    desk: Client, ada: User
) -> None:
    one, two = failed(enqueued(ada, "one")), enqueued(ada, "two")
    two.cancel()
    assert press(desk, "retry", one, two) == ["2 jobs run again."]
    for job, lines in ((one, 1), (two, 0)):
        job = fresh(job)
        assert (job.status, job.attempts, job.due, len(job.attempt_log)) == (
            "pending",
            0,
            True,
            lines,
        )
    assert ImportJob.objects.count() == 2


def test_retry_pressed_twice_or_selected_twice_makes_one_run(desk: Client, ada: User) -> None:
    job = failed(enqueued(ada))
    assert press(desk, "retry", job, job, job) == ["1 job runs again."]
    assert press(desk, "retry", job) == [
        f"Import {job.pk}: Only a failed or cancelled job can be run again."
    ]
    job = fresh(job)
    assert (job.status, len(job.attempt_log), ImportJob.objects.count()) == ("pending", 1, 1)


def test_retry_tells_for_each_job_why_it_is_refused(desk: Client, ada: User) -> None:
    done, running = completed(enqueued(ada, "done")), claimed(enqueued(ada, "running"))
    taken, good = failed(enqueued(ada, "taken")), failed(enqueued(ada, "good"))
    completed(enqueued(ada, "TAKEN"))
    told = press(desk, "retry", done, running, taken, good)
    assert sorted(told) == sorted(
        [
            f"Import {done.pk}: Only a failed or cancelled job can be run again.",
            f"Import {running.pk}: Only a failed or cancelled job can be run again.",
            f"Import {taken.pk}: You have a repository of this name already.",
            "1 job runs again.",
        ]
    )
    states = [fresh(job).status for job in (done, running, taken, good)]
    assert states == ["completed", "running", "failed", "pending"]


def test_of_two_failed_imports_to_one_name_retry_runs_one(desk: Client, ada: User) -> None:
    one = failed(enqueued(ada))
    two = failed(enqueued(ada, "ENGINE"))
    told = press(desk, "retry", one, two)
    assert "1 job runs again." in told
    assert any("The same work is already waiting or running." in text for text in told)
    assert sorted(fresh(job).status for job in (one, two)) == ["failed", "pending"]


def test_cancel_ends_what_waits_asks_what_runs_and_is_refused_for_what_is_over(
    desk: Client, ada: User
) -> None:
    waiting, running = enqueued(ada, "waiting"), claimed(enqueued(ada, "running"))
    over = failed(enqueued(ada, "over"))
    told = press(desk, "cancel", waiting, running, over)
    assert sorted(told) == [
        "2 jobs are being cancelled.",
        f"Import {over.pk}: This job is over already: there is nothing to cancel.",
    ]
    assert [fresh(job).status for job in (waiting, running, over)] == [
        "cancelled",
        "running",
        "failed",
    ]
    assert fresh(running).cancel_requested_at


def test_hostile_names_in_messages_are_text(desk: Client, ada: User) -> None:
    job = completed(enqueued(ada))
    answer = desk.post(
        LIST, {"action": "retry", "_selected_action": [str(job.pk), "<script>alert(1)</script>"]}
    )
    assert answer.status_code < 500
    assert b"<script>alert" not in answer.content


# Who.


def test_people_without_rights_have_no_way_in(page: Client, ada: User) -> None:
    job, clerk = failed(enqueued(ada)), staff()
    for address in (LIST, f"{LIST}{job.pk}/change/"):
        answer = page.get(address)
        assert answer.status_code == 302
        assert answer["Location"].startswith("/admin/login/")
        assert clerk.get(address).status_code == 403
    clerk.post(LIST, {"action": "retry", "_selected_action": [str(job.pk)]})
    page.post(LIST, {"action": "retry", "_selected_action": [str(job.pk)]})
    assert fresh(job).status == "failed"


def test_who_may_only_look_has_no_actions(ada: User) -> None:
    desk, job = staff("view_importjob"), failed(enqueued(ada))
    assert listed(desk) == ["ada/engine"]
    assert desk.get(f"{LIST}{job.pk}/change/").status_code == 200
    assert 'value="retry"' not in desk.get(LIST).content.decode()
    for action in ("retry", "cancel"):
        desk.post(LIST, {"action": action, "_selected_action": [str(job.pk)]})
    assert fresh(job).status == "failed"


def test_who_may_change_may_retry(ada: User) -> None:
    desk, job = staff("view_importjob", "change_importjob"), failed(enqueued(ada))
    assert press(desk, "retry", job) == ["1 job runs again."]
    assert desk.post(f"{LIST}{job.pk}/change/", {"status": "completed"}).status_code == 403
    assert fresh(job).status == "pending"


def test_who_may_add_and_delete_still_can_neither(ada: User) -> None:
    desk = staff("view_importjob", "add_importjob", "delete_importjob")
    job = failed(enqueued(ada))
    assert desk.get(f"{LIST}add/").status_code == 403
    assert desk.post(f"{LIST}{job.pk}/delete/", {"post": "yes"}).status_code == 403
    assert ImportJob.objects.exists()


# With its person.


def delete(desk: Client, user: User) -> Any:
    return desk.post(f"/admin/accounts/user/{user.pk}/delete/", {"post": "yes"})


def test_imports_go_with_their_person_and_a_running_one_is_lost(
    desk: Client, ada: User, bob: User
) -> None:
    failed(enqueued(ada, "one"))
    held = claimed(enqueued(ada, "two"))
    kept = enqueued(bob, "three")

    page = desk.get(f"/admin/accounts/user/{ada.pk}/delete/")
    assert f"{LIST}{held.pk}/change/" in page.text
    assert delete(desk, ada)["Location"] == "/admin/accounts/user/"

    assert list(ImportJob.objects.all()) == [kept]
    assert not User.objects.filter(pk=ada.pk).exists()
    with pytest.raises(LostClaim):
        held.report(progress_pct=50)


def test_people_go_with_their_imports_from_the_list_too(desk: Client, ada: User) -> None:
    enqueued(ada)
    chosen = {"action": "delete_selected", "_selected_action": [str(ada.pk)], "post": "yes"}

    assert desk.post("/admin/accounts/user/", chosen).status_code == 302

    assert not ImportJob.objects.exists()


def test_a_person_with_a_repository_stays(desk: Client, ada: User) -> None:
    completed(enqueued(ada))

    assert "protected" in delete(desk, ada).text

    assert User.objects.filter(pk=ada.pk).exists()
    assert ImportJob.objects.count() == 1


def test_who_may_delete_people_but_no_imports_deletes_none_who_has_one(ada: User) -> None:
    enqueued(ada)

    assert delete(staff("view_user", "delete_user"), ada).status_code == 403

    assert ImportJob.objects.count() == 1
