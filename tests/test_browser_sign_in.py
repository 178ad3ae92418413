"""Signing in by mail in a real browser, in front of a real Forge."""

import re
import time
from collections.abc import Callable

import pytest
import requests
from playwright.sync_api import Page, expect

from tests.forge_process import (
    PASSWORD,
    ForgeProcess,
    Person,
    administrator,
    on_both_databases,
    start_forge,
)
from tests.postmark import Postmark
from tests.sign_in_mails import Mailed, newest_to, text_of
from tests.test_browser import Visitor, browser, fits, visit
from tests.waiting import wait_for

__all__ = ["administrator", "browser", "on_both_databases", "start_forge", "visit"]

Start = Callable[..., ForgeProcess]
Begin = Callable[[ForgeProcess], Person]
both = pytest.mark.usefixtures("on_both_databases")


def ask(page: Page, address: str) -> None:
    page.get_by_label("E-mail address").first.fill(address)
    page.get_by_role("button", name="Mail me a sign-in link").click()
    expect(page.get_by_role("heading", name="Look into your mail")).to_be_visible()
    expect(page.get_by_text(address)).to_be_visible()


@both
@pytest.mark.parametrize("javascript", [True, False], ids=["with JavaScript", "without"])
def test_a_person_signs_in_by_a_mailed_link_on_another_device(
    start_forge: Start, administrator: Begin, visit: Callable[..., Visitor], javascript: bool
) -> None:
    forge = start_forge()
    administrator(forge)
    here, there = (visit(java_script_enabled=javascript).page() for _device in range(2))

    here.goto(f"{forge.address}/jobs")
    fits(here)
    ask(here, "ada@example.org")
    fits(here)
    link = forge.address + Mailed.in_text(text_of(newest_to("ada@example.org", of=forge))).path
    there.goto(link)
    fits(there)
    there.get_by_role("button", name="Sign in").click()

    expect(there).to_have_url(f"{forge.address}/jobs")
    expect(there.locator(".menu .handle")).to_have_text("ada")
    here.goto(f"{forge.address}/jobs")
    expect(here).to_have_url(re.compile("/sign-in"))
    assert requests.get(link, timeout=20).status_code == 410
    assert link.rpartition("/")[2] not in forge.output


@both
def test_somebody_new_types_the_code_and_chooses_a_handle(
    start_forge: Start, administrator: Begin, visit: Callable[..., Visitor]
) -> None:
    forge = start_forge(FORGE_SIGN_UP="domains", FORGE_SIGN_UP_DOMAINS="example.org")
    administrator(forge)
    page = visit().page()

    page.goto(f"{forge.address}/import")
    ask(page, "grace@example.org")
    code = Mailed.in_text(text_of(newest_to("grace@example.org", of=forge))).code
    page.get_by_label("Code").fill(f"{code[:3]} {code[3:]}")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("Handle").fill("ada")
    page.get_by_role("button", name="Make my account").click()
    expect(page.locator(".errorlist")).to_have_text("Somebody already has this handle.")
    fits(page)
    page.get_by_label("Handle").fill("grace")
    page.get_by_role("button", name="Make my account").click()

    expect(page).to_have_url(f"{forge.address}/import")
    expect(page.locator(".menu .handle")).to_have_text("grace")


def test_the_password_has_a_form_of_its_own(
    start_forge: Start, administrator: Begin, visit: Callable[..., Visitor]
) -> None:
    forge = start_forge()
    administrator(forge)
    page = visit().page()

    page.goto(f"{forge.address}/sign-in?next=/jobs")
    page.get_by_text("Sign in with a password").click()
    fits(page)
    page.get_by_label("E-mail address").nth(1).fill("ada@example.org")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()

    expect(page).to_have_url(f"{forge.address}/jobs")


@pytest.mark.parametrize(
    ("trusted", "told"), [("127.0.0.0/8", "203.0.113.9"), ("192.0.2.1", "127.0.0.1")]
)
def test_a_visitor_is_known_by_what_a_trusted_proxy_says(
    start_forge: Start, administrator: Begin, trusted: str, told: str
) -> None:
    forge = start_forge(FORGE_TRUSTED_PROXIES=trusted)
    administrator(forge)
    stranger = Person(forge)
    stranger.session.headers["X-Forwarded-For"] = "198.51.100.1, 203.0.113.9"

    assert stranger.open("/sign-in").ok
    assert stranger.send("/sign-in", email="ada@example.org").url.endswith("/sign-in/code")
    stranger.close()

    assert f"({told})" in text_of(newest_to("ada@example.org", of=forge))


@both
def test_the_page_waits_for_no_provider_and_the_mail_leaves_no_link_behind(
    start_forge: Start, postmark: Postmark
) -> None:
    postmark.seconds = 3
    forge = start_forge(FORGE_SIGN_UP="open", **postmark.environment).ready()
    stranger = Person(forge)
    stranger.open("/sign-in")
    addresses = [f"p{number}@example.org" for number in range(5)]
    seconds = []
    for address in addresses:
        began = time.monotonic()
        answer = stranger.send("/sign-in", email=address)
        seconds.append(time.monotonic() - began)
        assert answer.url.endswith("/sign-in/code")
    stranger.close()

    # Both the form and the page it leads to; what other programs took of the machine is not ours.
    assert min(seconds) < 0.1, seconds
    states = "SELECT status FROM jobs_emailjob"
    wait_for(lambda: forge.rows(states) == [("completed",)] * 5)
    assert sorted(mail["To"] for mail in postmark.mails) == addresses
    kept = str(forge.rows("SELECT * FROM jobs_emailjob"))
    for mail in postmark.mails:
        found = Mailed.in_text(mail["TextBody"])
        assert found.token not in kept + forge.output
        assert found.code not in kept
