"""`make screenshots`: every page of a running Forge, wide and narrow, light and dark.

They go to ./screenshots/; the one that the README shows goes to docs/progress.png.
"""

import re
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, expect

from tests import chromium
from tests.forge_process import ROOT, ForgeProcess, Person, run
from tests.furnished import engine, furnish, thirty_thousand
from tests.githttp import GitServer
from tests.sign_in_mails import Mailed, newest_to, text_of
from tests.waiting import wait_for

FOLDER = ROOT / "screenshots"
README_PICTURE = ROOT / "docs" / "progress.png"
SIZES = {"wide": 1280, "narrow": 360}


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    try:
        with chromium.launched() as browser, served() as (forge, server):
            take_all(browser, forge, server)
            take_mail(browser)
            take_languages(browser)
            take_readme_picture(browser, forge, server)
    except chromium.NoChromium as missing:
        sys.exit(str(missing))


@contextmanager
def served() -> Iterator[tuple[ForgeProcess, GitServer]]:
    """A new Forge, and a Git server that it may import from."""
    with tempfile.TemporaryDirectory() as folder:
        repositories = Path(folder) / "served"
        repositories.mkdir()
        with closing(GitServer(repositories)) as server:
            allowed = "127.0.0.1/32"
            forge = ForgeProcess(
                Path(folder) / "forge", FORGE_IMPORT_ALLOWED_NETWORKS=allowed, FORGE_SIGN_UP="open"
            )
            with closing(forge):
                yield forge.ready(), server


def take_all(browser: Browser, forge: ForgeProcess, server: GitServer) -> None:
    link = forge.welcome_link
    shown = {
        "welcome": urlsplit(link).path,
        "sign-in": "/sign-in",
        "sign-in-password": "/sign-in",
        "stranger": "/no/such/page",
    }
    take(browser, forge, None, shown)
    with closing(Person(forge).begin(link)) as person:
        take(browser, forge, person, {"home-empty": "/", "jobs-empty": "/jobs"})
        take_sign_in(browser, forge)
        paths = furnish(forge, person, server)
        shown = {"home": "/", "import": "/import", "import-wrong": "/import", "jobs": "/jobs"}
        shown |= {"404": "/no/such/page", **paths}
        shown |= {"admin": "/admin/", "admin-list": "/admin/jobs/importjob/"}
        failed = paths["failed"].split("/")[2]
        shown["admin-detail"] = f"/admin/jobs/importjob/{failed}/change/"
        take(browser, forge, person, shown)
        server.go_on.set()


MAILS = """
from datetime import UTC, datetime
from django.core.mail import EmailMultiAlternatives
from jobs.models import EmailJob
for number, subject in enumerate(["Your import of ada/engine is complete", "Grüße aus Zürich, mit einem Betreff, der länger ist als ein Telefon breit"]):
    mail = EmailMultiAlternatives(subject, "Ada,\\n\\nthe import is complete: http://127.0.0.1:8000/ada/engine\\n\\nForge\\n", to=["Ada Lovelace <ada@example.org>", "bob@example.org"][: number + 1])
    mail.attach_alternative("<p>Ada,</p><p>the import is <a href='http://127.0.0.1:8000/ada/engine'>complete</a>.</p>", "text/html")
    mail.attach("branches.txt", "main\\n", "text/plain")
    mail.send()
EmailJob.objects.enqueue(to=["eve@example.org"], subject="Never sent", text="The text.", not_after=datetime(2026, 1, 1, tzinfo=UTC))
EmailJob.objects.enqueue(to=["ada"], subject="No mail", text="The text.", max_attempts=1)
"""

TASKS = """
from jobs.engine.models import TaskJob
print(TaskJob.objects.enqueue(task="textwrap.wrap", payload={"args": ["Forge keeps each job as a row. " * 20], "kwargs": {"width": 40}}).pk)
"""


def take_mail(browser: Browser) -> None:
    """The outbox, which is there with DEBUG on only, and mails in the admin."""
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(ForgeProcess(Path(folder) / "forge", DEBUG="on")) as forge,
        closing(Person(forge.ready()).begin(forge.welcome_link)) as person,
    ):
        take(browser, forge, person, {"outbox-empty": "/outbox"})
        data = str(forge.data_dir)
        made = run(ROOT / "manage.py", "shell", "-v0", "-c", MAILS, FORGE_DATA_DIR=data)
        assert made.returncode == 0, made.stderr
        wait_for(lambda: _mails_over(forge) == 4)
        keys = {row[1]: uuid.UUID(str(row[0])) for row in _mails(forge)}
        complete, no_mail = keys["Your import of ada/engine is complete"], keys["No mail"]
        shown = {"outbox": "/outbox", "outbox-mail": f"/outbox/{complete}"}
        shown |= {"outbox-html": f"/outbox/{complete}/html"}
        shown |= {"admin-mails": "/admin/jobs/emailjob/"}
        shown["admin-mail"] = f"/admin/jobs/emailjob/{complete}/change/"
        shown["admin-mail-failed"] = f"/admin/jobs/emailjob/{no_mail}/change/"
        take(browser, forge, person, shown)
        take_tasks(browser, forge, person)


def take_tasks(browser: Browser, forge: ForgeProcess, person: Person) -> None:
    """A task in the admin, and the form that runs a copy of it."""
    data = str(forge.data_dir)
    key = run(ROOT / "manage.py", "shell", "-v0", "-c", TASKS, FORGE_DATA_DIR=data).stdout.strip()
    done = "SELECT 1 FROM jobs_engine_taskjob WHERE kind = 'textwrap.wrap' AND status = 'completed'"
    wait_for(lambda: forge.rows(done))
    tasks = "/admin/jobs_engine/taskjob/"
    shown = {"admin-tasks": tasks, "admin-task": f"{tasks}{key}/change/"}
    take(browser, forge, person, shown | {"admin-task-copy": f"{tasks}{key}/copy/"})


def _mails(forge: ForgeProcess) -> list[tuple[object, ...]]:
    return forge.rows("SELECT id, subject, status FROM jobs_emailjob")


def _mails_over(forge: ForgeProcess) -> int:
    return sum(row[2] in ("completed", "failed") for row in _mails(forge))


def take_languages(browser: Browser) -> None:
    """What people choose, the mails about their imports, and pages in French."""
    with served() as (forge, server), closing(Person(forge).begin(forge.welcome_link)) as person:
        engine(server.repositories)
        for language in ("en", "fr"):
            person.open("/preferences")
            chosen = {"mail_completed": "on", "mail_failed": "on"}
            person.send("/preferences", language=language, **chosen)
            mails, failed = _notified(forge, person, server, language)
            take(browser, forge, None, mails)
            shown = {"preferences": "/preferences", "import": "/import", "jobs": "/jobs"}
            shown |= {"repository": "/ada/engine-fr", "home": "/", "404": "/no/such/page"}
            shown |= {"admin-jobs": "/admin/jobs_engine/taskjob/"}
            if language == "en":
                shown = {"preferences": "/preferences"}
            switch_off = _switch_off(mails[f"mail-failed-{language}"])
            shown |= {"failed": failed, "switch-off": switch_off}
            named = {f"{name}-{language}": path for name, path in shown.items()}
            take(browser, forge, person, named)


def _notified(
    forge: ForgeProcess, person: Person, server: GitServer, language: str
) -> tuple[dict[str, str], str]:
    """Mails about an import that was completed and one that failed, as HTML; the latter's page."""
    words = {"en": ("completed", "failed"), "fr": ("terminé", "Échec")}[language]
    person.start_import(server.url("engine"), name=f"engine-{language}")
    wait_for(lambda: words[0] in newest_to("ada@example.org", of=forge)["Subject"])
    completed = text_of(newest_to("ada@example.org", of=forge), "html")
    path = person.start_import(server.url("nowhere"), name=f"nowhere-{language}")
    wait_for(lambda: words[1] in newest_to("ada@example.org", of=forge)["Subject"])
    failed = text_of(newest_to("ada@example.org", of=forge), "html")
    return {f"mail-completed-{language}": completed, f"mail-failed-{language}": failed}, path


def _switch_off(html: str) -> str:
    found = re.search(r"/preferences/mail/[^\"]+", html)
    assert found, html
    return found[0]


def take_sign_in(browser: Browser, forge: ForgeProcess) -> None:
    """The way of a mail, for somebody who has an account and for somebody new; and its ends."""
    links = {}
    for name, address in (("sign-in-link", "ada@example.org"), ("sign-up", "grace@example.org")):
        stranger = asked(forge, address)
        mail = newest_to(address, of=forge)
        links[name] = Mailed.in_text(text_of(mail)).path
        take(browser, forge, stranger, {"sign-in-code": "/sign-in/code"})
        take(browser, forge, None, {f"{name}-mail": text_of(mail, "html")})
        stranger.close()
    take(browser, forge, None, links | {"sign-in-unknown": "/sign-in/nonsense"})
    stranger = asked(forge, "x@example.org")
    for number in range(60):
        stranger.send("/sign-in", email=f"p{number}@example.org")
    take(browser, forge, None, {"429": "/sign-in"})
    stranger.close()


def asked(forge: ForgeProcess, address: str) -> Person:
    stranger = Person(forge)
    stranger.open("/sign-in")
    stranger.send("/sign-in", email=address)
    return stranger


def take(
    browser: Browser, forge: ForgeProcess, person: Person | None, shown: dict[str, str]
) -> None:
    """One picture of each page in each size and theme."""
    for theme in ("light", "dark"):
        for size, width in SIZES.items():
            page = opened(browser, person, theme=theme, width=width)
            for name, path in shown.items():
                if "<" in path:
                    page.set_content(path)
                else:
                    page.goto(forge.address + path)
                if name == "429":
                    page.get_by_label("E-mail address").first.fill("x@example.org")
                    page.get_by_role("button", name="Mail me").click()
                    expect(page.locator(".code")).to_have_text("429")
                if name == "sign-in-password":
                    page.get_by_text("Sign in with a password").click()
                if name == "import-wrong":
                    page.get_by_label("Clone URL").fill("git@example.org:ada/engine.git")
                    page.get_by_role("button", name="Import").click()
                    expect(page.locator(".errorlist")).to_be_visible()
                page.screenshot(path=FOLDER / f"{name}-{size}-{theme}.png", full_page=True)
            page.context.close()


def opened(browser: Browser, person: Person | None, **look: object) -> Page:
    """A new page, signed in as the person."""
    context = browser.new_context(
        color_scheme=look["theme"],
        viewport={"width": look["width"], "height": look.get("height", 800)},
        device_scale_factor=look.get("scale", 1),
    )
    for cookie in person.session.cookies if person else ():
        address = {"name": cookie.name, "value": cookie.value or "", "url": person.address}
        context.add_cookies([address])
    return context.new_page()


def take_readme_picture(browser: Browser, forge: ForgeProcess, server: GitServer) -> None:
    """A large import in the middle of its run."""
    thirty_thousand(server.repositories)
    server.bytes_per_second = 300_000
    with closing(Person(forge)) as person:
        person.sign_in()
        page = opened(browser, person, theme="light", width=900, height=450, scale=1.5)
        page.goto(forge.address + person.start_import(server.url("large", "slow"), name="large"))
        page.wait_for_function("() => document.querySelector('#progress progress').value > 50")
        README_PICTURE.parent.mkdir(exist_ok=True)
        page.screenshot(path=README_PICTURE)
        page.context.close()


if __name__ == "__main__":
    main()
