"""`{% job_progress %}`: what a bar says, of whatever it is given, and who may ask for more."""

import asyncio
import re
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.core import signing
from django.core.exceptions import SynchronousOnlyOperation
from django.db.models.functions import Now
from django.http import HttpRequest
from django.tasks import task
from django.template import Context, Template, engines
from django.test import Client
from django.utils import translation
from pytest_django import DjangoAssertNumQueries

from jobs.engine import bar
from jobs.engine.kinds import pause
from jobs.engine.models import TaskJob
from tests.kinds.models import Probe

pytestmark = pytest.mark.django_db

urlpatterns: list[Any] = []
"""Of a project that has not included the engine's addresses."""


@task
def double(number: int) -> int:
    return 2 * number


@task
def no_luck() -> None:
    raise ValueError("no luck")


def shown(given: Any, *, tag: str = "{% job_progress given %}", **context: Any) -> str:
    """The page with a bar, without its indentation."""
    template = Template("{% load jobs %}" + tag)
    return re.sub(r"\s+", " ", template.render(Context({"given": given, **context})))


def words(html: str) -> str:
    """What a person reads of the state."""
    state = html.partition('class="job-progress-state"')[2].partition('class="job-progress-said"')[
        0
    ]
    return " ".join(re.sub(r"<[^>]*>", " ", state.partition(">")[2]).split())


def probe(**columns: Any) -> Probe:
    return Probe.objects.enqueue(script="nothing", **columns)


def claimed(job: Probe) -> Probe:
    (held,) = Probe.objects.claim(1, worker="test", lease_seconds=30)
    assert held.pk == job.pk
    return held


def entry(held: Probe, message: str = "") -> dict[str, Any]:
    return held.log_entry("failed", ended_at=held.started_at, message=message)


def in_state(state: str) -> Probe:
    """A probe as it comes from the database."""
    job = probe(run_at=Now() + timedelta(days=3)) if state == "scheduled" else probe()
    if state not in ("waiting", "paused", "cancelled", "scheduled"):
        job = claimed(job)
    match state:
        case "paused":
            pause(Probe.kind, using=job._state.db)
        case "reporting":
            job.report(progress_pct=33, progress_done=3, progress_total=9, progress_step="reading")
        case "counting":
            job.report(progress_done=12345)
        case "stopping" | "cancelled":
            job.cancel()
        case "retrying":
            job.retry_later(1000, entry(job, "The line is down."))
        case "failed":
            job.fail(entry(job, "The source is gone."))
        case "failed without a word":
            job.fail(entry(job))
        case "completed":
            job.complete()
    return Probe.objects.get(pk=job.pk)


# What it says.


@pytest.mark.parametrize(
    ("state", "value", "told"),
    [
        ("waiting", "0", "Waiting 0%"),
        ("paused", "0", "Paused 0%"),
        ("running", None, "Running 0%"),
        ("counting", "0", "Running 12345 0% 0%"),
        ("reporting", "33", "Running reading 3 of 9 33% 33%"),
        ("stopping", None, "Stopping 0%"),
        ("completed", "100", "Completed 100% 100%"),
        ("failed", "0", "Failed 0% The source is gone."),
        ("failed without a word", "0", "Failed 0% No reason was recorded."),
        ("cancelled", "0", "Cancelled 0%"),
    ],
)
def test_every_state_is_told_in_words_and_by_the_bar(
    state: str, value: str | None, told: str
) -> None:
    html = shown(in_state(state))

    assert words(html).startswith(told)
    bars = re.findall(r'<progress max="100"(?: value="(\d+)")? aria-label="Probe">', html)
    assert bars == [value or ""], "no value is a bar that says so"


def test_a_job_that_waits_for_its_next_attempt_says_when_and_why() -> None:
    told = words(shown(in_state("retrying")))

    assert re.search(r"Waiting Next attempt at \d\d:\d\d:\d\d UTC .*The line is down\.", told)


def test_a_time_that_is_days_away_has_its_date() -> None:
    told = words(shown(in_state("scheduled")))

    assert re.search(r"Waiting Starts at \d{4}-\d\d-\d\d \d\d:\d\d UTC", told)


def test_only_a_job_that_goes_on_is_followed() -> None:
    for state in ("waiting", "running", "retrying"):
        html = shown(in_state(state))
        Probe.objects.all().delete()
        assert "data-stream=" in html
        assert "<noscript><span" in html
    for state in ("completed", "failed", "cancelled"):
        html = shown(in_state(state))
        Probe.objects.all().delete()
        assert "data-stream=" not in html
        assert "Reload" not in html


def test_the_label_says_what_is_being_done() -> None:
    html = shown(probe(), tag='{% job_progress given label="Report of <May>" %}')

    assert html.count("Report of &lt;May&gt;") == 3, "read, spoken, and for the script"
    assert 'aria-label="Report of &lt;May&gt;"' in html


def test_hostile_text_is_text() -> None:
    job = claimed(probe())
    job.report(progress_step='<script>alert(1)</script>" onclick="x')
    html = shown(Probe.objects.get(pk=job.pk))

    assert "<script>" not in html
    assert 'onclick="x' not in html.replace("&quot;", '"').partition("<progress")[2]
    assert "&lt;script&gt;" in html


# What it is given.


class Result:
    """As a task's result is, of a backend whose ids are the jobs'."""

    def __init__(self, job: TaskJob, status: str = "READY") -> None:
        self.id, self.status = str(job.pk), status


def test_a_result_is_shown_by_its_row_and_not_by_what_it_was(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    job = TaskJob.objects.enqueue(task="operator.neg")
    TaskJob.objects.claim(1, worker="test", lease_seconds=30)

    with django_assert_num_queries(1):
        html = shown(Result(job))

    assert words(html).startswith("Running")
    assert "data-stream=" in html


def test_a_result_whose_row_is_not_there_is_shown_by_its_own_word() -> None:
    job = TaskJob.objects.enqueue(task="operator.neg")
    job.delete()
    job.pk = uuid.uuid4()

    assert words(shown(Result(job))).startswith("Waiting")
    assert words(shown(Result(job, "SUCCESSFUL"))).startswith("Completed")


@pytest.mark.parametrize(
    ("backend", "made", "word"),
    [
        ("immediate.ImmediateBackend", lambda: double.enqueue(2), "Completed"),
        ("immediate.ImmediateBackend", no_luck.enqueue, "Failed"),
        ("dummy.DummyBackend", lambda: double.enqueue(2), "Waiting"),
    ],
)
def test_a_project_that_tests_with_another_backend_keeps_its_pages(
    settings: Any, backend: str, made: Callable[[], Any], word: str
) -> None:
    settings.TASKS = {"default": {"BACKEND": f"django.tasks.backends.{backend}"}}
    html = shown(made())

    assert words(html).startswith(word)
    assert "data-stream=" not in html


@pytest.mark.parametrize("given", [None, "", 7, object(), SimpleNamespace(id=1, status="open")])
def test_what_is_no_job_is_refused_in_a_sentence(given: Any) -> None:
    with pytest.raises(TypeError, match="job_progress shows a job or the result of a task, not"):
        shown(given)


def test_a_project_without_the_addresses_gets_the_state(settings: Any) -> None:
    settings.ROOT_URLCONF = __name__
    html = shown(in_state("reporting"))

    assert "3 of 9" in html
    assert "data-stream" not in html
    assert "<noscript>" not in html
    assert "Reload this page to see how far it is." in html


# What it brings along.

SCRIPT = '<script type="module" src="/static/jobs_engine/progress.js"></script>'


@pytest.mark.parametrize(
    "tags",
    [
        "{% job_progress given %}{% job_progress given %}",
        "{% for _ in 'ab' %}{% job_progress given %}{% endfor %}",
        "{% include piece %}{% include piece only %}{% job_progress given %}",
        "{% job_progress_assets %}{% include piece %}",
        "{% job_progress_assets %}{% job_progress_assets %}",
    ],
)
def test_script_and_style_come_once_for_a_page(tags: str) -> None:
    piece = Template("{% load jobs %}{% if given %}{% job_progress given %}{% endif %}")
    for _page in range(2):
        html = shown(probe(), tag=tags, piece=piece)
        assert html.count(SCRIPT) == 1
        assert html.count("<link ") == 1
        assert html.startswith("<link ")


def test_script_and_style_have_the_nonce_of_the_page(client: Client) -> None:
    request = HttpRequest()
    request._csp_nonce = "n0nce"  # type: ignore[attr-defined]
    template = engines["django"].from_string("{% load jobs %}{% job_progress job %}")

    html = template.render({"job": probe()}, request)

    assert html.count(' nonce="n0nce">') == 2


# Who may ask for more.


def address(given: Any, *, of: str = "state") -> str:
    (found,) = re.findall(f'data-{of}="([^"]+)"', shown(given))
    return str(found)


def test_whoever_was_shown_the_bar_may_ask_how_far_it_is(
    client: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    job = probe()
    path = address(job)
    claimed(job).report(progress_pct=40)

    with django_assert_num_queries(1):
        answer = client.get(path)

    assert answer.status_code == 200
    assert answer["Cache-Control"] == "no-store"
    assert answer.content.startswith(b'<span class="job-progress-state" data-status="running"')
    assert b'value="40"' in answer.content
    assert client.post(path).status_code == 405


def test_a_job_that_is_gone_says_so(client: Client) -> None:
    job = probe()
    path = address(job)
    job.delete()

    answer = client.get(path).content.decode()

    assert "This job is not there any more." in answer
    assert "data-over" in answer


def test_a_server_that_would_lose_a_thread_has_no_stream(client: Client) -> None:
    answer = client.get(address(probe(), of="stream"))

    assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize("of", ["state", "stream"])
def test_any_other_token_opens_nothing(client: Client, of: str, monkeypatch: Any) -> None:
    job = probe()
    path = address(job, of=of)
    token = bar.token_of(Probe, job.pk)
    half = len(token) // 2
    for wrong in (
        token.swapcase(),
        token[:half] + ("a" if token[half] != "a" else "b") + token[half + 1 :],
        signing.dumps([Probe.kind, job.pk.hex, "en"]),
        signing.dumps(["gone", job.pk.hex, "en"], salt=bar.SALT),
        str(job.pk),
        "%00%ff",
        "x" * 5000,
    ):
        assert client.get(path.replace(path.split("/")[3], wrong)).status_code == 404


def test_a_token_is_of_no_use_after_a_week(client: Client, monkeypatch: Any) -> None:
    job = probe()
    now = time.time()
    with monkeypatch.context() as patched:
        patched.setattr(signing.time, "time", lambda: now - 8 * 24 * 3600)
        old = address(job)
        patched.setattr(signing.time, "time", lambda: now - 6 * 24 * 3600)
        young = address(job)

    assert client.get(old).status_code == 404
    assert client.get(young).status_code == 200


def test_a_bar_keeps_the_language_of_its_page() -> None:
    with translation.override("fr"):
        token = bar.token_of(Probe, probe().pk)

    feed, _pk = bar.opened(token)

    assert feed.language == "fr"


def test_in_a_coroutine_the_tag_says_how_a_page_is_rendered_there() -> None:
    async def view(given: Any) -> str:
        return shown(given)

    for given in (double.enqueue(1), probe()):
        with pytest.raises(SynchronousOnlyOperation, match=r"await sync_to_async\(render\)"):
            asyncio.run(view(given))
