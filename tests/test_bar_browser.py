"""Bars in a real browser, on pages of a project that has the engine and nothing else of Forge."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
from playwright.sync_api import Locator, Page, expect

from tests.kinds.models import Probe
from tests.postgres import free_port
from tests.test_browser import Visitor, browser, visit
from tests.waiting import wait_for
from tests.workers import ROOT, command_environment

__all__ = ["browser", "visit"]

pytestmark = pytest.mark.django_db(transaction=True)

NO_STREAM = "EventSource's response has a status"
ASYNC_UNSAFE = "DJANGO_ALLOW_ASYNC_UNSAFE"


@pytest.fixture(scope="module", autouse=True)
def rows_beside_playwright() -> Iterator[None]:
    """Playwright keeps an event loop in this thread, which waits while the thread reads rows."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(ASYNC_UNSAFE, "1")
        yield


class Project:
    """`tests.bars`, served by a process of its own."""

    def __init__(self, how: str) -> None:
        self.how, self.port = how, free_port()
        self.process: subprocess.Popen[bytes]
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.bars.serve", self.how, str(self.port)]
        environment = command_environment()
        del environment[ASYNC_UNSAFE]
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment)
        wait_for(self._answers)

    def _answers(self) -> bool:
        assert self.process.poll() is None, "the server has ended"
        try:
            return requests.get(self.address(), timeout=20).ok
        except requests.ConnectionError:
            return False

    def address(self, *jobs: Probe) -> str:
        return f"http://127.0.0.1:{self.port}/?{'&'.join(f'job={job.pk}' for job in jobs)}"

    def stop(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def serve(transactional_db: None) -> Iterator[Callable[[str], Project]]:
    projects: list[Project] = []

    def serve(how: str) -> Project:
        projects.append(Project(how))
        return projects[-1]

    yield serve
    for project in projects:
        project.stop()


def probe(name: str) -> Probe:
    return Probe.objects.enqueue(script="nothing", argument=name)


def running(name: str) -> Probe:
    probe(name)
    (held,) = Probe.objects.claim(1, worker="test", lease_seconds=30)
    return held


def failed(held: Probe) -> None:
    held.fail(held.log_entry("failed", ended_at=held.started_at, message="The source is gone."))


def word(page: Page, name: str) -> Locator:
    return page.locator(f"#{name} .job-progress-word")


def bar(page: Page, name: str) -> Locator:
    return page.locator(f"#{name} progress")


def asked(page: Page) -> list[str]:
    """What the page has asked for since: `state` and `stream`, or a file."""
    paths: list[str] = []

    def note(request: Any) -> None:
        path = request.url.partition("?")[0].rpartition("/")[2]
        paths.append("state" if ":" in path else path)

    page.on("request", note)
    return paths


@pytest.mark.parametrize("how", ["asgi", "wsgi"])
def test_bars_move_to_their_ends_without_a_reload(
    serve: Callable[[str], Project], visit: Callable[..., Visitor], how: str
) -> None:
    one, two = running("one"), running("two")
    visitor = visit()
    page = visitor.page()
    paths = asked(page)
    page.goto(serve(how).address(one, two))
    page.evaluate("addEventListener('job-over', event => document.title += event.detail.status)")
    for name in ("one", "two"):
        expect(word(page, name)).to_have_text("Running")
    assert bar(page, "one").get_attribute("value") is None

    one.report(progress_pct=40, progress_done=4, progress_total=10, progress_step="reading")
    expect(bar(page, "one")).to_have_attribute("value", "40")
    expect(page.locator("#one")).to_contain_text("4 of 10")
    expect(page.locator("#one [role=status]")).to_have_text("Running, 40%")
    expect(page.get_by_label("one")).to_have_js_property("value", 40)
    assert bar(page, "two").get_attribute("value") is None
    one.complete()
    failed(two)

    expect(word(page, "one")).to_have_text("Completed")
    expect(word(page, "two")).to_have_text("Failed")
    expect(page.locator("#two")).to_contain_text("The source is gone.")
    assert sorted(page.title().removeprefix("Bars").split("ed")) == ["", "complet", "fail"]
    assert paths.count("progress.js") == paths.count("progress.css") == 1
    if how == "asgi":
        assert paths.count("stream") == 2
        assert "state" not in paths
    else:
        assert paths.count("stream") <= 2
        assert paths.count("state") >= 3
        # That there is no stream is told to the browser by an answer that it mentions.
        visitor.complaints[:] = [c for c in visitor.complaints if NO_STREAM not in c]


def test_a_page_with_many_bars_keeps_connections_for_itself(
    serve: Callable[[str], Project], visit: Callable[..., Visitor]
) -> None:
    jobs = [running(f"n{number}") for number in range(8)]
    page = visit().page()
    paths = asked(page)
    page.goto(serve("asgi").address(*jobs))

    for number, job in enumerate(jobs):
        job.report(progress_pct=10 + number)
    for number in range(8):
        expect(bar(page, f"n{number}")).to_have_attribute("value", str(10 + number))

    assert paths.count("stream") == 3
    assert page.evaluate("fetch('/').then(answer => answer.ok)")


def test_without_javascript_the_page_says_how_far_it_is_and_how_to_see_more(
    serve: Callable[[str], Project], visit: Callable[..., Visitor]
) -> None:
    job = running("one")
    job.report(progress_pct=40)
    page = visit(java_script_enabled=False).page()
    page.goto(serve("wsgi").address(job))
    expect(word(page, "one")).to_have_text("Running")
    expect(bar(page, "one")).to_have_attribute("value", "40")
    # Playwright reads no text in a noscript, so this sentence is known by the room that it takes.
    box = page.locator("#one noscript span").bounding_box()
    assert box and box["height"] > 10 and box["width"] > 100

    job.complete()
    page.reload()

    expect(word(page, "one")).to_have_text("Completed")
    expect(page.locator("noscript")).to_have_count(0)


@pytest.mark.parametrize("how", ["asgi", "wsgi"])
def test_a_bar_finds_its_way_back_to_a_server_that_was_killed(
    serve: Callable[[str], Project], visit: Callable[..., Visitor], how: str
) -> None:
    job = running("one")
    project = serve(how)
    visitor = visit()
    page = visitor.page()
    page.goto(project.address(job))
    job.report(progress_pct=40)
    expect(bar(page, "one")).to_have_attribute("value", "40")

    project.stop()

    expect(page.get_by_text("The connection is lost.")).to_be_visible()
    failed(job)
    project.start()
    expect(word(page, "one")).to_have_text("Failed")
    expect(page.get_by_text("The connection is lost.")).to_be_hidden()
    assert [c for c in visitor.complaints if not re.search(f"net::ERR|{NO_STREAM}", c)] == []
    visitor.complaints.clear()


def test_a_bar_that_nobody_sees_is_not_followed(
    serve: Callable[[str], Project], visit: Callable[..., Visitor]
) -> None:
    job = running("one")
    page = visit().page()
    page.goto(serve("asgi").address(job))
    job.report(progress_pct=40)
    expect(bar(page, "one")).to_have_attribute("value", "40")
    paths = asked(page)

    hide(page, "true")
    job.report(progress_pct=60)
    hide(page, "false")

    expect(bar(page, "one")).to_have_attribute("value", "60")
    assert paths == ["stream"]


def hide(page: Page, hidden: str) -> None:
    """As when another tab comes to the front, or goes."""
    page.evaluate(
        f"Object.defineProperty(document, 'hidden', {{ value: {hidden}, configurable: true }});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )


def test_a_bar_that_comes_later_is_followed_and_one_with_a_dead_address_says_so(
    serve: Callable[[str], Project], visit: Callable[..., Visitor]
) -> None:
    job = running("one")
    visitor = visit()
    page = visitor.page()
    page.goto(serve("asgi").address(job))
    page.evaluate("""() => {
        const here = document.querySelector("#one"), there = here.cloneNode(true);
        there.id = "two";
        const dead = there.querySelector("job-progress");
        dead.dataset.state = dead.dataset.stream = "/jobs/nothing";
        here.after(there);
        const third = here.cloneNode(true);
        third.id = "three";
        here.remove();
        there.after(third);
    }""")

    expect(page.locator("#two [data-stale]")).to_be_visible()
    job.report(progress_pct=70)
    expect(bar(page, "three")).to_have_attribute("value", "70")

    assert [c for c in visitor.complaints if "404" not in c and NO_STREAM not in c] == []
    visitor.complaints.clear()
