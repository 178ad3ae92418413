"""The installed Chromium, driven by playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
]


class NoChromium(Exception):
    """There is no browser; the message says what to install."""


def installed() -> str:
    """The path of the browser; raises NoChromium."""
    for program in PROGRAMS:
        found = shutil.which(program)
        if found:
            return found
    raise NoChromium("No Chromium for the tests. Install one (Debian: apt-get install chromium).")


@contextmanager
def launched() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=installed(), args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()
