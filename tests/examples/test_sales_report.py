"""A page with a button, a bar that moves, and then the report."""

import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from playwright.sync_api import Page, expect

from tests import chromium
from tests.examples.project import FOLDER, Examples
from tests.postgres import free_port
from tests.waiting import wait_for

SALES = 100_000
RESULT = "SELECT status, attempts FROM jobs_engine_taskjob"
REMEMBER = """
new MutationObserver(() => {
  const numbers = document.querySelector(".job-progress-numbers");
  if (numbers) sessionStorage.seen = (sessionStorage.seen || "") + numbers.textContent + ";";
}).observe(document.body, {subtree: true, childList: true});
"""


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


@pytest.fixture(params=["wsgi", "asgi"])
def address(request: pytest.FixtureRequest, examples: Examples) -> str:
    """Where the pages are: by the command of the README, or by a server that has streams."""
    port = str(free_port())
    if request.param == "wsgi":
        examples.start("manage.py", "runserver", "--noreload", port)
    else:
        examples.serve_asgi(port)
    found = f"http://127.0.0.1:{port}"
    wait_for(lambda: answers(found), seconds=60)
    return found


@contextmanager
def page_at(address: str) -> Iterator[Page]:
    with chromium.launched() as browser, closing(browser.new_page()) as page:
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(address)
        yield page
        assert wrong == []


def test_the_bar_moves_and_the_report_takes_its_place(
    examples: Examples, address: str, request: pytest.FixtureRequest
) -> None:
    examples.manage("make_sales", str(SALES))
    with page_at(address) as page:
        page.get_by_role("button", name="Make the report").click()
        expect(page.get_by_role("heading", name="Sales of 2026")).to_be_visible()
        expect(page.locator("[data-status=pending] progress")).to_be_visible()
        page.evaluate(REMEMBER)

        examples.start("manage.py", "runworker")
        expect(page.get_by_role("table")).to_be_visible(timeout=60_000)

        rows = page.locator("tbody tr")
        expect(rows).to_have_count(12)
        assert sum(int(row.locator("td").nth(1).inner_text()) for row in rows.all()) == SALES
        if "asgi" in request.node.name:
            # Who asks once a second may miss a report as short as this one.
            assert f"of {SALES}" in page.evaluate("sessionStorage.seen").replace(",", "")
    assert examples.query(RESULT) == [("completed", 1)]


def test_asking_twice_makes_one_report(examples: Examples) -> None:
    ask = "from sales_report.tasks import report_of; print(report_of.enqueue(year=2026).id)"
    first, second = (examples.manage("shell", "-v0", "-c", ask) for _ in range(2))

    assert first == second


def test_the_examples_are_sound(examples: Examples) -> None:
    assert examples.manage("check") == "System check identified no issues (0 silenced)."
    assert examples.manage("makemigrations", "--check", "--dry-run") == "No changes detected"


@pytest.mark.parametrize("app", ["sales_report", "csv_import", "mail_campaign"])
def test_each_readme_tells_commands_that_there_are(app: str, examples: Examples) -> None:
    known = examples.manage("help", "--commands").splitlines()
    readme = (FOLDER / app / "README.md").read_text()
    told = [line.split()[2] for line in readme.splitlines() if line.startswith("python manage.py")]

    assert "runworker" in told
    assert set(told) <= set(known)
