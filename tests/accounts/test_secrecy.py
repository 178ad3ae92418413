"""One-time links and codes are in no log, no report and no admin."""

import logging
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.conf import settings as configured
from django.contrib import admin
from django.core.mail import EmailMultiAlternatives
from django.db.models.signals import pre_save
from django.test import Client
from django.utils.log import AdminEmailHandler

from accounts.models import Allowance, SetupToken, SignInToken, User
from accounts.setup import setup_link
from forge.logs import WithoutTokens
from tests.accounts.mails import mailed
from tests.sign_in_mails import Mailed

Outbox = list[EmailMultiAlternatives]

pytestmark = pytest.mark.django_db
ADDRESS = "ada@example.org"


@pytest.fixture
def mail(client: Client, mailoutbox: Outbox) -> Mailed:
    User.objects.create_user(email=ADDRESS, handle="ada")
    return mailed(client, mailoutbox, ADDRESS)


@pytest.fixture
def broken(settings: Any) -> Any:
    """Every page fails, and the failure is mailed to an administrator."""
    settings.ADMINS = ["root@example.org"]

    def fail(**_more: Any) -> None:
        raise RuntimeError("broken")

    pre_save.connect(fail, sender=User, dispatch_uid="broken")
    yield
    pre_save.disconnect(sender=User, dispatch_uid="broken")


def test_no_warning_of_a_page_repeats_its_token(
    client: Client, mail: Mailed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "django.request")

    client.put(mail.path)
    client.post(mail.path)
    client.post(mail.path)
    client.get("/sign-in/unknown-unknown-unknown-unknown")

    told = [record.getMessage() for record in caplog.records if record.name == "django.request"]
    assert len(told) == 3
    assert all("/sign-in/***" in line for line in told)
    assert mail.token not in caplog.text
    assert "unknown-unknown" not in caplog.text


@pytest.mark.parametrize("way", ["link", "code", "welcome"])
def test_an_error_report_has_neither_token_nor_code(
    client: Client, mail: Mailed, mailoutbox: Outbox, broken: None, way: str
) -> None:
    link = setup_link("http://forge.example") or ""
    told = {
        "handle": "b",
        "email": "b@example.org",
        "password1": "m & store",
        "password2": "m & store",
    }
    client.raise_request_exception = False
    handler = AdminEmailHandler()
    logger = logging.getLogger("django.request")
    logger.addHandler(handler)
    try:
        answer = {
            "link": lambda: client.post(mail.path),
            "code": lambda: client.post("/sign-in/code", {"code": mail.code}),
            "welcome": lambda: client.post(link.removeprefix("http://forge.example"), told),
        }[way]()
    finally:
        logger.removeHandler(handler)

    assert answer.status_code == 500
    report = mailoutbox[-1]
    assert report.to == ["root@example.org"]
    text = report.subject + report.body
    for secret in (mail.token, mail.code, link.rpartition("/")[2], "m & store"):
        assert secret not in text


def formatted(log: Callable[[logging.Logger], None]) -> str:
    """What Forge's own handler would write."""
    out = StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(WithoutTokens("{levelname} {message}", style="{"))
    logger = logging.Logger("one")
    logger.addHandler(handler)
    log(logger)
    return out.getvalue()


@pytest.mark.parametrize("page", ["sign-in", "welcome"])
def test_the_log_itself_leaves_tokens_out(page: str) -> None:
    token = "a-Token_" * 6

    def log(logger: logging.Logger) -> None:
        logger.warning("Forbidden (%s): %s", "reason", f"/{page}/{token}")
        try:
            raise ValueError(f"http://forge.example/{page}/{token}?x=1")
        except ValueError:
            logger.exception("broken")

    text = formatted(log)

    assert token not in text
    assert f"Forbidden (reason): /{page}/***" in text
    assert f"ValueError: http://forge.example/{page}/***?x=1" in text


def test_the_log_keeps_what_is_no_token() -> None:
    assert formatted(lambda logger: logger.error("/sign-in/code")) == "ERROR /sign-in/code\n"
    assert configured.LOGGING["formatters"]["line"]["()"] == "forge.logs.WithoutTokens"


def test_the_admin_shows_no_links() -> None:
    for model in (SignInToken, SetupToken, Allowance):
        assert not admin.site.is_registered(model)
