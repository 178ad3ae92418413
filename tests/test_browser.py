"""The whole product in a real browser, from the first link to the repository's page."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect

from tests import chromium, gitrepos
from tests.forge_process import (
    PASSWORD,
    ForgeProcess,
    Person,
    on_both_databases,
    own_database,
    start_forge,
    started,
)
from tests.furnished import furnish, thirty_thousand
from tests.githttp import GitServer
from tests.waiting import wait_for

__all__ = ["on_both_databases", "start_forge"]

both = pytest.mark.usefixtures("on_both_databases")
BAR = "#progress progress"
SECONDS = 1000
"""A second, as playwright counts."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium.launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return thirty_thousand(tmp_path_factory.mktemp("large"))


@pytest.fixture(scope="module")
def forge(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ForgeProcess]:
    """One Forge for all tests that need no fresh one."""
    data_dir = tmp_path_factory.mktemp("forge")
    with own_database(request.config) as database, started(data_dir, database) as start:
        yield start().ready()


@pytest.fixture(scope="module")
def person(forge: ForgeProcess) -> Iterator[Person]:
    person = Person(forge).begin(forge.welcome_link)
    yield person
    person.close()


class Visitor:
    """Opens pages and notes every complaint of the browser."""

    def __init__(self, context: BrowserContext) -> None:
        context.set_default_timeout(20 * SECONDS)
        context.on("console", self._note_message)
        context.on("weberror", lambda error: self._note("error", str(error.error)))
        self.context = context
        self.complaints: list[str] = []

    def _note_message(self, message: ConsoleMessage) -> None:
        self._note(message.type, f"{message.text} [{message.location.get('url')}]")

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    def page(self) -> Page:
        return self.context.new_page()

    def sign_in(self, person: Person) -> "Visitor":
        """Take over the session of a person."""
        for cookie in person.session.cookies:
            self.context.add_cookies(
                [{"name": cookie.name, "value": cookie.value or "", "url": person.address}]
            )
        return self


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Visitor]]:
    """A new visitor; no page that was opened may have made the browser complain."""
    visitors: list[Visitor] = []

    def visit(**options: object) -> Visitor:
        visitors.append(Visitor(browser.new_context(**options)))
        return visitors[-1]

    yield visit
    for visitor in visitors:
        visitor.context.close()
    assert [visitor.complaints for visitor in visitors] == [[] for _visitor in visitors]


def test_a_missing_chromium_fails_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")

    with pytest.raises(chromium.NoChromium, match="apt-get install chromium"):
        chromium.installed()


# The whole way.


@both
@pytest.mark.parametrize("javascript", [True, False], ids=["with JavaScript", "without"])
def test_a_person_imports_a_repository_and_watches_it_land(
    start_forge: Callable[..., ForgeProcess],
    visit: Callable[..., Visitor],
    git_server: GitServer,
    large: Path,
    javascript: bool,
) -> None:
    shutil.copytree(large, git_server.repositories / "large.git")
    git_server.bytes_per_second = 700_000
    forge = start_forge()
    page = visit(java_script_enabled=javascript).page()

    become_administrator(page, forge.welcome_link)
    ask_for(page, git_server.url("large", "slow"))
    values = watch(page) if javascript else watch_it_refresh(page)

    assert values == sorted(values), "a bar never falls"
    assert len(set(values)) >= (5 if javascript else 2), values
    assert values[-1] == 100
    page.get_by_role("link", name="Open ada/large").click()
    expect(page).to_have_url(forge.address + "/ada/large")
    expect(page.locator(".tree")).to_contain_text("README.md")
    expect(page.locator(".readme h1")).to_have_text("Difference engine")
    expect(page.locator(".clone")).to_contain_text(forge.address + "/ada/large.git")


# On the way.


def test_a_reload_and_a_second_tab_show_the_same(
    forge: ForgeProcess, person: Person, visit: Callable[..., Visitor], held: "Held"
) -> None:
    visitor = visit().sign_in(person)
    first = visitor.page()
    first.goto(forge.address + "/import")
    ask_for(first, held.url, name="tabs")
    held.wait()
    expect(first.locator(".step")).to_contain_text("Receiving")
    seen = percent(first)
    assert 0 < seen < 100

    second = visitor.page()
    second.goto(first.url)
    first.reload()

    assert percent(first) == percent(second) >= seen
    held.go_on()
    for page in (first, second):
        expect(page.locator(".badge")).to_have_text("Completed")
        assert page.title() == "✓ ada/tabs · Forge"


def test_a_running_import_can_be_cancelled(
    forge: ForgeProcess, person: Person, visit: Callable[..., Visitor], held: "Held"
) -> None:
    page = visit().sign_in(person).page()
    page.goto(forge.address + "/import")
    ask_for(page, held.url, name="unwanted")
    held.wait()

    page.get_by_role("button", name="Cancel the import").click()

    expect(page.locator(".badge")).to_have_text("Cancelled")
    expect(page.locator(".step")).to_contain_text("Nothing is left of it")
    wait_for(lambda: not list((forge.data_dir / "repositories" / ".staging").iterdir()))


def test_a_failed_import_says_why_and_can_be_tried_again(
    forge: ForgeProcess, person: Person, visit: Callable[..., Visitor], git_server: GitServer
) -> None:
    page = visit().sign_in(person).page()
    page.goto(forge.address + "/import")
    ask_for(page, git_server.url("late"))
    expect(page.locator(".badge")).to_have_text("Failed")
    expect(page.locator(".reason")).to_contain_text("no repository at this address")
    gitrepos.small(git_server.repositories, "late")

    page.get_by_role("button", name="Retry").click()

    expect(page.locator(".badge")).to_have_text("Completed")
    page.get_by_role("link", name="Open ada/late").click()
    expect(page.locator(".readme h1")).to_have_text("Hello")


def test_a_page_finds_its_way_back_to_a_web_server_that_was_killed(
    forge: ForgeProcess, person: Person, visit: Callable[..., Visitor], held: "Held"
) -> None:
    visitor = visit().sign_in(person)
    page = visitor.page()
    page.goto(forge.address + "/import")
    ask_for(page, held.url, name="survivor")
    held.wait()
    expect(page.locator(".step")).to_contain_text("Receiving")

    forge.child("web").kill()

    expect(page.locator(".lost")).to_be_visible()
    expect(page.locator(".lost")).to_be_hidden()
    held.go_on()
    expect(page.locator(".badge")).to_have_text("Completed")
    # That the stream broke is the one thing to complain of; htmx does so too.
    assert [c for c in visitor.complaints if not re.search(r"net::ERR|htmx", c)] == []
    visitor.complaints.clear()


# How it looks.


def test_no_page_makes_the_browser_complain_or_scroll_sideways(
    start_forge: Callable[..., ForgeProcess],
    visit: Callable[..., Visitor],
    git_server: GitServer,
) -> None:
    forge = start_forge().ready()
    strangers = visit().page()
    for path in (urlsplit(forge.welcome_link).path, "/sign-in"):
        fits(strangers, forge.address + path)
    person = Person(forge).begin(forge.welcome_link)
    paths = furnish(forge, person, git_server)
    visitor = visit().sign_in(person)
    page = visitor.page()
    shown = ["/", "/import", "/jobs", *paths.values(), "/admin/", "/admin/jobs/importjob/"]
    for path in shown:
        fits(page, forge.address + path)
    detail = page.locator("#result_list th a").first.get_attribute("href")
    fits(page, forge.address + str(detail))

    assert visitor.complaints == []
    fits(page, forge.address + "/no/such/page")
    page.goto(forge.address + "/import")
    page.get_by_label("Clone URL").fill("ftp://example.org/x")
    page.get_by_role("button", name="Import").click()
    expect(page.locator(".errorlist")).to_contain_text("must begin with https://")
    fits(page)
    # The browser notes every answer that is no success; these two are asked for.
    assert [c for c in visitor.complaints if not re.search(r"status of (404|422)", c)] == []
    visitor.complaints.clear()
    person.close()


def fits(page: Page, url: str | None = None) -> None:
    """Open the page, wide and narrow: nothing may stick out on the right."""
    if url:
        page.goto(url)
    for width in (1280, 360):
        page.set_viewport_size({"width": width, "height": 800})
        wide = page.evaluate("document.scrollingElement.scrollWidth")
        # Django's own admin scrolls its tables inside.
        assert wide <= width, f"{page.url} is {wide} px wide in {width} px"


# What a person does.


def become_administrator(page: Page, link: str) -> None:
    page.goto(link)
    page.get_by_label("E-mail address").fill("ada@example.org")
    page.get_by_label("Handle").fill("ada")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_label("Password again").fill(PASSWORD)
    page.get_by_role("button", name="Make my account").click()
    page.get_by_role("link", name="Import a repository").first.click()


def ask_for(page: Page, url: str, *, name: str = "") -> None:
    """Fill in and send the import form."""
    page.get_by_label("Clone URL").fill(url)
    page.get_by_label(re.compile("^Name")).fill(name)
    page.get_by_role("button", name="Import").click()
    expect(page).to_have_url(re.compile(r"/import/[0-9a-f-]{36}/progress$"))


def percent(page: Page) -> int:
    return int(page.locator(BAR).get_attribute("value") or -1)


def watch(page: Page) -> list[int]:
    """Every value that the bar shows until the import is completed, without a reload."""
    script = f"""seen => {{
        const bar = document.querySelector("{BAR}");
        return bar.value !== seen && [bar.value, bar.closest(".completed") !== null];
    }}"""
    values, over = [-1], False
    while not over:
        value, over = page.wait_for_function(script, arg=values[-1], timeout=30_000).json_value()
        values.append(int(value))
    return values[1:]


def watch_it_refresh(page: Page) -> list[int]:
    """What the bar shows each time the page has refreshed itself, until nothing changes any more."""
    values = [percent(page)]
    while page.locator(".completed").count() == 0:
        with page.expect_event("domcontentloaded", timeout=10 * SECONDS):
            pass
        values.append(percent(page))
    assert page.locator("meta[http-equiv=refresh]").count() == 0
    return values


class Held:
    """An import that stops half-way until it may go on."""

    def __init__(self, server: GitServer) -> None:
        self._server = server
        self.url = server.url("large", "held")

    def wait(self) -> None:
        wait_for(self._server.reached.is_set)

    def go_on(self) -> None:
        self._server.go_on.set()


@pytest.fixture
def held(git_server: GitServer, large: Path) -> Held:
    shutil.copytree(large, git_server.repositories / "large.git")
    git_server.halfway = 1_500_000
    return Held(git_server)
