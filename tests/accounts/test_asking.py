"""Asking for a sign-in mail tells nobody who has an account, and is limited."""

import re
import secrets
import statistics
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.mail import EmailMultiAlternatives
from django.db import connection
from django.db.models.functions import Now
from django.template import Template
from django.test import Client
from django.test.signals import template_rendered
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import Allowance, SignInToken, User
from accounts.sign_in_views import ASKED_FROM_NETWORK, CODES_FROM_NETWORK, MAILS_AT_ONCE
from accounts.signing_in import VALID_FOR
from forge.mailers import mailers
from jobs.engine.wakeup import Waker, channel_of
from jobs.models import EmailJob
from tests.accounts.mails import ask, forget_limits, mailed, who
from tests.sign_in_mails import Mailed

Outbox = list[EmailMultiAlternatives]

pytestmark = pytest.mark.django_db
KNOWN, UNKNOWN, LEFT = "ada@example.org", "eve@example.org", "left@example.org"


@pytest.fixture(autouse=True)
def ada(db: None) -> User:
    User.objects.create_user(email=LEFT, handle="left", is_active=False)
    return User.objects.create_user(email=KNOWN, handle="ada")


@pytest.fixture
def queueing(settings: Any) -> None:
    """Mails become jobs, as they do outside of tests."""
    settings.MAILERS = mailers()


def told(client: Client, address: str) -> tuple[Any, ...]:
    """All that the asker can see, less what is random or repeats the address."""
    answer = ask(client, address)
    page = client.get("/sign-in/code")
    wrong = client.post("/sign-in/code", {"code": "000000"})
    cookies = sorted((name, len(morsel.value)) for name, morsel in answer.cookies.items())
    texts = [
        re.sub(r'(csrfmiddlewaretoken" value|nonce)="[\w-]+', "", shown.text).replace(address, "…")
        for shown in (page, wrong)
    ]
    return answer.status_code, answer["Location"], sorted(answer.headers), cookies, texts


def test_every_address_gets_the_same_answer(mailoutbox: Outbox) -> None:
    seen = [told(Client(), address) for address in (KNOWN, "eva@example.org", "out@example.org")]

    assert seen[0] == seen[1] == seen[2]
    assert [mail.to for mail in mailoutbox] == [[KNOWN]]


def test_who_was_shut_out_gets_no_mail(client: Client, mailoutbox: Outbox) -> None:
    ask(client, LEFT)

    assert mailoutbox == []
    assert client.get("/sign-in/code").status_code == 200


@pytest.mark.parametrize("address", [KNOWN, UNKNOWN])
def test_wrong_codes_are_answered_alike(client: Client, address: str) -> None:
    ask(client, address)

    answers = [client.post("/sign-in/code", {"code": "000000"}).status_code for _time in range(6)]

    assert answers == [200] * 4 + [410] * 2


def statements(queries: Any) -> list[str]:
    """What was asked of which table; savepoints aside, which are words to no disk."""
    found = (re.match(r'(\w+) .*?"(\w+)"', query["sql"]) for query in queries)
    return [" ".join(match.groups()) for match in found if match and "SAVEPOINT" not in match[0]]


def test_a_mail_and_no_mail_cost_the_same_statements(queueing: None) -> None:
    costs = []
    for address in (KNOWN, UNKNOWN, LEFT):
        forget_limits()
        with CaptureQueriesContext(connection) as queries:
            ask(Client(), address)
        costs.append(statements(queries))

    assert costs[0] == costs[1] == costs[2]
    assert "INSERT jobs_emailjob" in costs[0]
    assert [job.to for job in EmailJob.objects.all()] == [[KNOWN]]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("address", [KNOWN, UNKNOWN, LEFT])
def test_nobody_waits_to_write_while_a_mail_is_worded(
    queueing: None, client: Client, address: str
) -> None:
    in_transaction: dict[str, bool] = {}

    def note(template: Template, **_more: Any) -> None:
        in_transaction[str(template.name)] = connection.in_atomic_block

    template_rendered.connect(note)
    try:
        ask(client, address)
    finally:
        template_rendered.disconnect(note)

    worded = {f"accounts/mail/sign_in.{name}" for name in ("subject.txt", "txt", "html")}
    assert worded <= set(in_transaction)
    assert not any(in_transaction.values())


def test_row_and_mail_tell_the_time_of_the_database(
    client: Client, mailoutbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as clock:
        clock.setattr(timezone, "now", lambda: datetime(2001, 2, 3, tzinfo=UTC))
        ask(client, KNOWN)

    row: Any = SignInToken.objects.annotate(now=Now()).get()
    assert timedelta() <= row.now - row.created_at < timedelta(minutes=1)
    assert row.expires_at - row.created_at == VALID_FOR
    assert f"{row.created_at:%Y-%m-%d %H:%M} UTC" in mailoutbox[0].body
    assert f"{row.expires_at:%d %b %Y %H:%M:%S}" in str(mailoutbox[0].message()["Expires"])


@pytest.mark.django_db(transaction=True)
def test_a_worker_wakes_for_no_mail_as_for_a_mail(queueing: None, client: Client) -> None:
    woken = threading.Event()
    waker = Waker([channel_of("email")], woken.set)
    waker.start()
    try:
        # Its own beginning wakes it too.
        assert woken.wait(20)
        for address in (KNOWN, UNKNOWN, LEFT):
            forget_limits()
            woken.clear()
            ask(client, address)
            assert woken.wait(5), address
    finally:
        waker.close()


@pytest.mark.django_db(transaction=True)
def test_a_mail_and_no_mail_take_the_same_time(queueing: None, client: Client) -> None:
    seconds: dict[str, list[float]] = {KNOWN: [], UNKNOWN: []}
    for _time in range(100):
        for address, taken in seconds.items():
            forget_limits()
            began = time.perf_counter()
            ask(client, address)
            taken.append(time.perf_counter() - began)

    known, unknown = (statistics.median(taken) for taken in seconds.values())
    assert 0.85 < known / unknown < 1.18, (known, unknown)


@pytest.mark.parametrize(("sign_up", "mails"), [("closed", 0), ("open", 1)])
def test_a_thousand_questions_for_an_unknown_address_are_limited(
    client: Client, mailoutbox: Outbox, settings: Any, sign_up: str, mails: int
) -> None:
    settings.FORGE_SIGN_UP = sign_up
    answers: dict[str, list[int]] = {KNOWN: [], UNKNOWN: []}
    for address, times in ((KNOWN, 100), (UNKNOWN, 1000)):
        forget_limits()
        for _time in range(times):
            # A stranger each time: a new client would make all middleware anew.
            client.cookies.clear()
            answers[address].append(ask(client, address).status_code)

    allowed = ASKED_FROM_NETWORK.count
    assert answers[UNKNOWN] == [302] * allowed + [429] * (1000 - allowed)
    assert answers[UNKNOWN][:100] == answers[KNOWN]
    assert sum(mail.to == [UNKNOWN] for mail in mailoutbox) == mails
    assert sum(mail.to == [KNOWN] for mail in mailoutbox) == 1


def test_many_networks_cannot_flood_a_mailbox(client: Client, mailoutbox: Outbox) -> None:
    for number in range(100):
        client.cookies.clear()
        answer = client.post("/sign-in", {"email": KNOWN}, REMOTE_ADDR=f"192.0.2.{number}")
        assert (answer.status_code, answer["Location"]) == (302, "/sign-in/code")

    assert len(mailoutbox) == 1


def test_another_mail_goes_out_after_a_minute_and_the_first_one_still_works(
    client: Client, mailoutbox: Outbox
) -> None:
    ask(client, KNOWN)
    Allowance.objects.update(used_until=timezone.now())
    ask(client, KNOWN.upper())

    assert len(mailoutbox) == 2


def test_who_asks_twice_goes_on_with_the_mail_that_is_under_way(
    client: Client, mailoutbox: Outbox
) -> None:
    forget_limits()
    mail = mailed(client, mailoutbox, KNOWN)

    ask(client, KNOWN.upper())

    assert len(mailoutbox) == 1
    assert client.post("/sign-in/code", {"code": mail.code})["Location"] == "/"


def test_too_many_questions_are_a_page_that_says_for_how_long(client: Client) -> None:
    for number in range(ASKED_FROM_NETWORK.count):
        assert ask(client, f"p{number}@example.org").status_code == 302

    page = ask(client, UNKNOWN)

    assert page.status_code == 429
    assert 0 < int(page["Retry-After"]) <= 60
    assert "Forge now waits a minute" in page.text
    other = client.post("/sign-in", {"email": UNKNOWN}, REMOTE_ADDR="192.0.2.9")
    assert other.status_code == 302


def test_addresses_of_one_ipv6_network_share_a_limit(client: Client) -> None:
    answers = [
        client.post("/sign-in", {"email": UNKNOWN}, REMOTE_ADDR=f"2001:db8::{number:x}")
        for number in range(ASKED_FROM_NETWORK.count + 1)
    ]

    assert [answer.status_code for answer in answers[-2:]] == [302, 429]


def tries(address: str, network: str) -> list[int]:
    """The answers to five wrong codes after a new question in a new browser."""
    browser = Client(REMOTE_ADDR=network)
    ask(browser, address)
    post = {"path": "/sign-in/code", "data": {"code": "000000"}}
    return [browser.post(**post).status_code for _time in range(5)]  # type: ignore[arg-type]


def test_codes_are_limited_by_network() -> None:
    rounds = CODES_FROM_NETWORK.count // 5
    for number in range(rounds):
        assert tries(f"p{number}@example.org", "192.0.2.1") == [200] * 4 + [410]

    assert tries("p99@example.org", "192.0.2.1") == [429] * 5
    assert tries("p99@example.org", "192.0.2.2") == [200] * 4 + [410]


def test_strangers_cannot_close_the_codes_of_an_address(client: Client, mailoutbox: Outbox) -> None:
    for number in range(10):
        assert tries(KNOWN, f"192.0.2.{number}") == [200] * 4 + [410]

    # A minute later.
    Allowance.objects.get(key=MAILS_AT_ONCE.key(KNOWN)).delete()
    ask(client, KNOWN)
    code = Mailed.by(mailoutbox[-1]).code

    assert len(mailoutbox) == 2
    assert client.post("/sign-in/code", {"code": code})["Location"] == "/"


def test_one_stranger_uses_up_the_mails_of_no_address(client: Client, mailoutbox: Outbox) -> None:
    def minutes_later(browser: Client) -> int:
        Allowance.objects.filter(key=MAILS_AT_ONCE.key(KNOWN)).delete()
        ask(browser, KNOWN)
        return len(mailoutbox)

    # One computer, which reaches Forge by both: two networks.
    by_ipv4, by_ipv6 = Client(REMOTE_ADDR="192.0.2.1"), Client(REMOTE_ADDR="2001:db8::1")
    assert [minutes_later(by_ipv4) for _time in range(4)] == [1, 2, 2, 2]
    assert [minutes_later(by_ipv6) for _time in range(4)] == [3, 4, 4, 4]

    # The stranger's vain question holds up nobody, not even for a minute.
    ask(client, KNOWN)
    assert len(mailoutbox) == 5
    assert minutes_later(client) == 5


@pytest.mark.parametrize("address", [KNOWN, UNKNOWN])
def test_no_code_fits_where_no_mail_went_out(
    client: Client, mailoutbox: Outbox, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr(secrets, "randbelow", lambda _most: 123456)
    ask(Client(), address)
    sent = len(mailoutbox)

    ask(client, address)
    page = client.post("/sign-in/code", {"code": "123456"})

    assert len(mailoutbox) == sent == int(address == KNOWN)
    assert (page.status_code, who(client)) == (200, None)


def test_right_codes_use_no_limit_up(client: Client, mailoutbox: Outbox) -> None:
    mail = mailed(client, mailoutbox, KNOWN)
    before = set(Allowance.objects.values_list("key", flat=True))

    client.post("/sign-in/code", {"code": mail.code})

    ahead = Allowance.objects.filter(used_until__gt=timezone.now() + timedelta(seconds=1))
    assert set(ahead.values_list("key", flat=True)) == before


def test_a_swept_row_is_over(client: Client, mailoutbox: Outbox) -> None:
    mail = mailed(client, mailoutbox, KNOWN)
    SignInToken.objects.all().delete()

    assert client.post("/sign-in/code", {"code": mail.code}).status_code == 410
    assert who(client) is None
