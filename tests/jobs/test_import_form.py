"""`/import`: what a person may ask for, and what Forge says to everything else."""

import logging
import statistics
import threading
import time
import uuid
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from accounts.models import User
from jobs.engine.execution import give_connections_back
from jobs.forms import ImportForm
from jobs.models import ImportJob
from tests.githttp import GitServer
from tests.jobs.conftest import SOURCE, browser, completed, enqueued, failed, fresh, person

pytestmark = pytest.mark.django_db

NO_CONTROLS = "An address has no spaces, backslashes or control characters."
NO_NUL = "Null characters are not allowed."
NO_NAME = "The URL suggests no name: give one."
NOT_FROM_HERE = "Forge does not import from this address. The administrator can allow its network."
BAD_SLUG = "Use at most 100 letters, digits, dots, hyphens or underscores"
TAKEN = "You have a repository of this name already."
UNDER_WAY = "Another import to this name is waiting or running."


def ask(page: Client, source: str = SOURCE, **more: Any) -> Any:
    """Send the form as a browser does."""
    fields = {"source_url": source, "owner": "ada", "name": "", "visibility": "private", **more}
    return page.post("/import", {name: text for name, text in fields.items() if text is not None})


def errors(answer: Any) -> dict[str, list[str]]:
    assert answer.status_code == 422
    return dict(answer.context["form"].errors)


def job_at(answer: Any) -> ImportJob:
    """The job to whose page a good answer leads."""
    assert answer.status_code == 302, answer.context["form"].errors
    empty, kind, pk, page = answer["Location"].split("/")
    assert (empty, kind, page) == ("", "import", "progress")
    return ImportJob.objects.get(pk=uuid.UUID(pk))


# A good form.


def test_a_good_form_makes_one_pending_job_and_leads_to_its_page(page: Client, ada: User) -> None:
    job = job_at(ask(page, name="mill", visibility="public"))

    assert ImportJob.objects.count() == 1
    assert (job.status, job.user, job.slug) == ("pending", ada, "mill")
    assert (job.source_url, job.visibility, job.local) == (SOURCE, "public", False)
    assert job.max_running_seconds == 3600


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (SOURCE, "engine"),
        ("https://example.org/ada/engine/", "engine"),
        ("HTTPS://EXAMPLE.org/Engine.GIT", "Engine"),
        ("https://example.org/caf%C3%A9", "caf"),
        ("https://example.org/a%20b", "a-b"),
    ],
)
def test_an_empty_name_takes_the_one_that_the_url_suggests(
    page: Client, source: str, name: str
) -> None:
    assert job_at(ask(page, source)).slug == name


def test_owner_and_visibility_may_be_left_out_and_mean_mine_and_private(
    page: Client, ada: User
) -> None:
    job = job_at(ask(page, owner=None, visibility=None))
    assert (job.user, job.visibility) == (ada, "private")


def test_spaces_around_the_url_and_the_name_are_not_held_against_anybody(page: Client) -> None:
    job = job_at(ask(page, f"  {SOURCE}\n", name=" mill "))
    assert (job.source_url, job.slug) == (SOURCE, "mill")


def test_no_form_can_ask_for_a_path_of_this_machine(page: Client, data_dir: Any) -> None:
    assert job_at(ask(page, local="on")).local is False
    assert "source_url" in errors(ask(page, "/etc", local="on", name="etc"))
    assert "source_url" in errors(ask(page, "file:///etc", local="true", name="etc"))


def test_no_form_can_set_what_is_not_asked_for(page: Client, ada: User, bob: User) -> None:
    job = job_at(ask(page, user=bob.pk, status="completed", priority="9", max_attempts="99"))
    assert (job.user, job.status, job.priority, job.max_attempts) == (ada, "pending", 0, 3)


def test_the_address_may_fill_in_the_source(page: Client) -> None:
    text = page.get("/import", {"source_url": SOURCE}).content.decode()
    assert f'value="{SOURCE}"' in text


# Bad input.


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        ("source_url", "", "This field is required."),
        ("source_url", "   ", "This field is required."),
        ("source_url", "https://exa\x07mple.org/a", NO_CONTROLS),
        ("source_url", "https://example.org/a b", NO_CONTROLS),
        ("source_url", "https://example.org/a%0ab", NO_CONTROLS),
        ("source_url", "https://example.org/\u2028a", NO_CONTROLS),
        ("source_url", "https://example.org/\x00a", NO_NUL),
        ("source_url", "https://example.org/" + "a" * 3000, "This address is too long."),
        (
            "source_url",
            "https://example.org/" + "a" * 4980,
            "Ensure this value has at most 4096 characters (it has 5000).",
        ),
        ("source_url", "--upload-pack=touch", "The address must begin with https:// or http://."),
        ("source_url", "file:///etc/passwd", "The address must begin with https:// or http://."),
        (
            "source_url",
            "git@example.org:ada/engine.git",
            "SSH addresses cannot be imported. Try https://example.org/ada/engine.git instead.",
        ),
        ("source_url", "https://[::1", "This is not a valid address."),
        ("source_url", "https://example.org:99999/a", "This is not a valid address."),
        ("source_url", "https:///a", "The host of this address is not valid."),
        ("source_url", "http://127.0.0.1/a", NOT_FROM_HERE),
        ("source_url", "http://[::1]/a", NOT_FROM_HERE),
        ("source_url", "http://10.1.2.3/a", NOT_FROM_HERE),
        ("source_url", "http://169.254.169.254/latest", NOT_FROM_HERE),
        ("source_url", "http://[::ffff:10.0.0.1]/a", NOT_FROM_HERE),
        ("source_url", "http://127.1/a", "The host of this address is not valid."),
        ("source_url", "http://0x7f000001/a", "The host of this address is not valid."),
        (
            "source_url",
            "https://ada:pass@example.org/a",
            "Leave the name and the password out of the address.",
        ),
        (
            "source_url",
            "https://example.org/a?token=secret",
            "Leave out the part of the address that begins with “?” or “#”.",
        ),
        ("owner", "bob", "Select a valid choice. bob is not one of the available choices."),
        ("owner", "\x00", "Select a valid choice. \x00 is not one of the available choices."),
        ("visibility", "secret", "Select a valid choice. secret is not one of the available "),
        ("visibility", "private\x00", "Select a valid choice. private\x00 is not one of the "),
        ("name", "..", BAD_SLUG),
        ("name", ".hidden", BAD_SLUG),
        ("name", "-rf", BAD_SLUG),
        ("name", "a/b", BAD_SLUG),
        ("name", "engine.git", BAD_SLUG),
        ("name", "engine.LOCK", BAD_SLUG),
        ("name", "caf\u00e9", BAD_SLUG),
        ("name", "\u212aelvin", BAD_SLUG),
        ("name", "a\nb", BAD_SLUG),
        ("name", "<script>", BAD_SLUG),
        ("name", "a\x00b", NO_NUL),
        ("name", "n" * 101, "Ensure this value has at most 100 characters (it has 101)."),
    ],
)
def test_bad_input_gets_its_message_at_its_field_and_the_others_are_kept(
    page: Client, field: str, text: str, message: str
) -> None:
    sent = {"source_url": SOURCE, "owner": "ada", "name": "mill", "visibility": "public"}

    answer = ask(page, **{**sent, "source": SOURCE, field: text} | _source(field, text))

    found = errors(answer)
    assert list(found) == [field]
    assert found[field][0].startswith(message)
    form = answer.context["form"]
    kept = {name: form[name].value() for name in sent if name != field}
    assert kept == {name: sent[name] for name in kept}
    assert ImportJob.objects.count() == 0


def _source(field: str, text: str) -> dict[str, str]:
    return {"source": text} if field == "source_url" else {}


def test_all_faults_are_told_at_once(page: Client) -> None:
    found = errors(ask(page, "ftp://example.org/a", owner="eve", name="..", visibility="none"))
    assert set(found) == {"source_url", "owner", "name", "visibility"}


def test_an_url_without_a_name_asks_for_one(page: Client) -> None:
    assert errors(ask(page, "https://example.org/")) == {"name": [NO_NAME]}
    assert job_at(ask(page, "https://example.org/", name="root")).slug == "root"


@pytest.mark.parametrize("fields", [{}, {"source_url": ["a", "b"]}, {"name": "only"}])
def test_a_form_with_missing_or_repeated_fields_is_answered_as_a_form(
    page: Client, fields: dict[str, Any]
) -> None:
    assert page.post("/import", fields).status_code == 422


def test_a_body_that_is_no_form_is_answered_as_an_empty_one(page: Client) -> None:
    answers = [
        page.post("/import", b'{"source_url": "x"}', content_type="application/json"),
        page.post("/import", b"\xff\xfe=%ff", content_type="application/x-www-form-urlencoded"),
        page.post("/import", b"--x\r\nbroken", content_type="multipart/form-data; boundary=x"),
    ]
    assert {answer.status_code for answer in answers} <= {400, 422}


def test_bytes_that_are_no_utf8_are_refused_and_never_stored(page: Client) -> None:
    body = b"source_url=https://example.org/a&name=%ff%fe"
    answer = page.post("/import", body, content_type="application/x-www-form-urlencoded")
    assert list(errors(answer)) == ["name"]


def test_hostile_text_is_shown_as_text(page: Client) -> None:
    attack = '"><script>alert(1)</script>'
    texts = [
        ask(page, attack, name=attack, owner=attack, visibility=attack).content.decode(),
        page.get("/import", {"source_url": attack}).content.decode(),
    ]
    for text in texts:
        assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in texts[0]


# Secrets.


@pytest.mark.parametrize(
    "source",
    [
        "https://ada:hunter2@example.org/a",
        "https://hunter2@example.org/a",
        "https://ada:hun/hunter2@example.org/a",
        "https://ada:hunter2#x@example.org/a",
        "https://ada:hunter2@[::1/a",
        "https:/ada:hunter2@example.org/a",
        "ada:hunter2@example.org/a",
        "ssh://ada:hunter2@example.org/a",
        "https://example.org/a?private_token=hunter2",
        "https://example.org/a#hunter2",
        " https://ada:hunter2@example.org/a b",
    ],
)
def test_no_secret_that_was_typed_comes_back_or_into_the_log(
    page: Client, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answer = ask(page, source, name="")

    assert "source_url" in errors(answer)
    assert "hunter2" not in answer.content.decode()
    assert "example.org" in answer.context["form"]["source_url"].value() or "::1" in source
    assert "hunter2" not in page.get("/import", {"source_url": source}).content.decode()
    assert "hunter2" not in "".join(record.getMessage() for record in caplog.records)


def test_an_address_that_is_right_comes_back_as_it_was_typed(page: Client) -> None:
    typed = " HTTPS://Example.org/@scope/engine.git/ "
    answer = ask(page, typed, name="..")
    assert answer.context["form"]["source_url"].value() == typed
    assert typed.strip() in answer.content.decode()


# Names.


def test_a_name_of_mine_is_taken_without_regard_to_case(page: Client, ada: User) -> None:
    completed(enqueued(ada, "Engine"))
    assert errors(ask(page)) == {"name": [TAKEN]}
    assert errors(ask(page, "https://example.org/other", name="eNGINE")) == {"name": [TAKEN]}


def test_a_name_of_somebody_else_is_free(page: Client, bob: User) -> None:
    completed(enqueued(bob, "engine"))
    enqueued(bob, "mill")
    job_at(ask(page))
    job_at(ask(page, name="mill"))


def test_a_name_is_reserved_while_another_import_to_it_is_under_way(
    page: Client, ada: User
) -> None:
    job_at(ask(page))
    assert errors(ask(page, "https://example.org/other", name="ENGINE")) == {"name": [UNDER_WAY]}
    assert ImportJob.objects.count() == 1


def test_the_same_source_for_other_eyes_is_another_wish(page: Client) -> None:
    job_at(ask(page, visibility="public"))
    assert errors(ask(page, visibility="private")) == {"name": [UNDER_WAY]}


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_a_name_is_free_again_after_failure_and_cancel(page: Client, end: str) -> None:
    first = job_at(ask(page))
    failed(first) if end == "failed" else first.cancel()

    second = job_at(ask(page, "https://example.org/other", name="engine"))

    assert second.pk != first.pk


# Two clicks.


def test_a_double_click_makes_one_job(page: Client) -> None:
    first, second = ask(page), ask(page)
    assert job_at(first) == job_at(second)
    assert ImportJob.objects.count() == 1


def test_a_double_click_in_another_spelling_makes_one_job(page: Client) -> None:
    first, second = ask(page), ask(page, "https://EXAMPLE.ORG/ada/engine.git/", name="ENGINE")
    assert job_at(first) == job_at(second)


@pytest.mark.django_db(transaction=True)
def test_clicks_at_the_same_moment_make_one_job() -> None:
    ada = person("ada")
    clicks = 6
    together = threading.Barrier(clicks)
    answers: list[Any] = []

    def click(mouse: Client) -> None:
        together.wait(10)
        try:
            answers.append(ask(mouse))
        finally:
            give_connections_back()

    hands = [threading.Thread(target=click, args=(browser(ada),)) for _ in range(clicks)]
    for hand in hands:
        hand.start()
    for hand in hands:
        hand.join(30)

    (job,) = ImportJob.objects.all()
    assert len(answers) == clicks
    assert {job_at(answer) for answer in answers} == {job}


@pytest.mark.django_db(transaction=True)
def test_an_equal_import_that_ends_at_this_very_moment_makes_way_for_a_new_one(
    ada: User,
) -> None:
    first = enqueued(ada)

    def cancel() -> None:
        first.cancel()
        give_connections_back()

    elsewhere = threading.Thread(target=cancel)

    def end_first(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        # The insert was refused, and before the equal one is read, it ends.
        if sql.startswith("SELECT") and '"unique_key" IN' in sql and elsewhere.ident is None:
            elsewhere.start()
            elsewhere.join(20)
        return execute(sql, parameters, many, context)

    form = ImportForm({"source_url": SOURCE, "visibility": "private"}, user=ada)
    assert form.is_valid()
    with connection.execute_wrapper(end_first):
        job = form.enqueue()

    assert fresh(first).status == "cancelled", "the moment did not come"
    assert job is not None
    assert (job.pk != first.pk, job.duplicate) == (True, False)


# Who, and how.


def test_every_page_of_jobs_wants_a_signed_in_person(client: Client, ada: User) -> None:
    job = enqueued(ada)
    pages = ["/import", "/jobs", *(f"/import/{job.pk}/{page}" for page in ("progress", "stream"))]
    for address in pages:
        answer = client.get(address)
        assert (answer.status_code, answer["Location"]) == (302, f"/sign-in?next={address}")
    for address in ("/import", f"/import/{job.pk}/cancel", f"/import/{job.pk}/retry"):
        answer = client.post(address)
        assert (answer.status_code, answer["Location"]) == (302, f"/sign-in?next={address}")
    assert ImportJob.objects.get().status == "pending"


def test_without_its_csrf_token_no_form_does_anything(ada: User) -> None:
    strict = browser(ada, enforce_csrf_checks=True)
    job = enqueued(ada, "waiting")
    for address in ("/import", f"/import/{job.pk}/cancel", f"/import/{job.pk}/retry"):
        assert strict.post(address, {"source_url": SOURCE}).status_code == 403
    assert [one.status for one in ImportJob.objects.all()] == ["pending"]

    token = strict.get("/import").cookies["csrftoken"].value
    job_at(strict.post("/import", {"source_url": SOURCE, "csrfmiddlewaretoken": token}))


@pytest.mark.parametrize("method", ["put", "patch", "delete", "options", "trace"])
def test_other_methods_are_refused_and_change_nothing(page: Client, ada: User, method: str) -> None:
    job = enqueued(ada)
    pages = ["progress", "stream", "cancel", "retry"]
    for address in ("/import", "/jobs", *(f"/import/{job.pk}/{name}" for name in pages)):
        assert getattr(page, method)(address).status_code == 405
    assert page.post(f"/import/{job.pk}/progress").status_code == 405
    assert ImportJob.objects.get().status == "pending"


def test_pages_can_be_asked_for_their_head(page: Client, ada: User) -> None:
    job = enqueued(ada)
    for address in ("/import", "/jobs", f"/import/{job.pk}/progress"):
        assert page.head(address).status_code == 200


# Speed.


@pytest.mark.django_db(transaction=True)
def test_the_answer_comes_at_once_whatever_the_source_does(git_server: GitServer) -> None:
    page = browser(person("ada"))
    answers, times = [], []
    for number in range(24):
        asked = time.perf_counter()
        answers.append(ask(page, git_server.url(f"never{number}", "silent")))
        times.append(time.perf_counter() - asked)

    assert {answer.status_code for answer in answers} == {302}
    assert statistics.median(times[3:]) < 0.05
    assert git_server.requests == []


# One form, one job.


def ticket_of(page: Client) -> str:
    return str(page.get("/import").context["form"]["ticket"].value())


def test_each_shown_form_has_a_ticket_of_its_own(page: Client) -> None:
    assert ticket_of(page) != ticket_of(page)


@pytest.mark.parametrize("end", [failed, completed])
def test_a_double_click_makes_one_job_also_when_the_first_is_over_already(
    page: Client, end: Any
) -> None:
    ticket = ticket_of(page)
    first = job_at(ask(page, ticket=ticket))
    end(first)

    assert job_at(ask(page, ticket=ticket)).pk == first.pk
    assert ImportJob.objects.count() == 1


def test_the_same_form_sent_with_another_wish_makes_another_job(page: Client) -> None:
    ticket = ticket_of(page)
    first = job_at(ask(page, ticket=ticket))

    second = job_at(ask(page, "https://example.org/ada/other", ticket=ticket))

    assert second.pk != first.pk
    assert ImportJob.objects.count() == 2


def test_the_ticket_of_somebody_else_gives_nothing_away(page: Client, bob: User) -> None:
    theirs = enqueued(bob)
    mine = job_at(ask(page, ticket=str(theirs.pk)))
    assert mine.pk != theirs.pk
    assert mine.user.handle == "ada"


@pytest.mark.parametrize("ticket", ["nonsense", "\x00", "1" * 500])
def test_a_forged_ticket_is_told_and_makes_no_job(page: Client, ticket: str) -> None:
    assert ask(page, ticket=ticket).status_code == 422
    assert not ImportJob.objects.exists()


def test_who_must_sign_in_first_finds_the_address_in_the_form_again(ada: User) -> None:
    answer = Client().post("/import", {"source_url": "https://bob:secret@example.org/x"})
    assert answer.status_code == 302
    assert answer["Location"].startswith("/sign-in?next=/import%3Fsource_url%3D")
    assert "example.org" in answer["Location"]
    assert "secret" not in answer["Location"]
    page = browser(ada)
    assert (
        page.get("/import?source_url=https://example.org/x").context["form"]["source_url"].value()
    )


@pytest.mark.parametrize("verb", ["cancel", "retry"])
def test_a_link_to_a_button_does_nothing_and_says_so(page: Client, ada: User, verb: str) -> None:
    job = enqueued(ada)
    answer = page.get(f"/import/{job.pk}/{verb}", follow=True)
    assert "press the button again" in answer.text
    assert fresh(job).status == "pending"
