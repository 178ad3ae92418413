"""Signing in by a mailed link, or by its code."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.signals import user_logged_out
from django.core.mail import EmailMultiAlternatives
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import SignInToken, User
from accounts.signing_in import VALID_FOR, sweep
from jobs.apps import make_built_in_schedules
from jobs.engine.models import Schedule, TaskJob
from jobs.engine.testing import run_pending
from tests.accounts.at_once import at_once
from tests.accounts.mails import ask, forget_limits, mailed, who
from tests.sign_in_mails import Mailed

Outbox = list[EmailMultiAlternatives]

pytestmark = pytest.mark.django_db
ADDRESS = "ada@example.org"


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_user(email=ADDRESS, handle="ada")


def expire(by: timedelta = VALID_FOR) -> None:
    SignInToken.objects.update(expires_at=F("expires_at") - by)


# The mail.


def test_the_mail_has_a_link_and_a_code_and_says_how_long_and_who_asked(
    client: Client, ada: User, mailoutbox: Outbox, settings: Any
) -> None:
    settings.FORGE_URL = "https://forge.example"
    firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0"
    client.post("/sign-in", {"email": ADDRESS}, headers={"user-agent": firefox})

    (mail,) = mailoutbox
    html, kind = mail.alternatives[0]
    assert (mail.to, mail.subject) == ([ADDRESS], "Your link to sign in to forge.example")
    assert mail.sent_using == "urgent"  # type: ignore[attr-defined]
    assert kind == "text/html"
    for text in (mail.body, html):
        found = Mailed.by(mail)
        assert f"https://forge.example{found.path}" in text
        assert f"{found.code[:3]} {found.code[3:]}" in text
        assert "within 15 minutes" in text
        assert "Firefox on Linux (127.0.0.1)" in text
        assert "ada" in text
    assert found.code not in mail.subject


def test_the_mail_says_until_when_it_is_worth_sending(
    client: Client, ada: User, mailoutbox: Outbox
) -> None:
    ask(client, ADDRESS)

    headers = mailoutbox[0].message()
    row = SignInToken.objects.get()
    assert headers["Expires"].endswith("+0000")
    assert row.expires_at.strftime("%d %b %Y %H:%M:%S") in headers["Expires"]
    assert headers["Auto-Submitted"] == "auto-generated"
    assert row.expires_at - row.created_at == VALID_FOR


def test_the_words_of_a_visitor_never_get_into_a_mail(
    client: Client, ada: User, mailoutbox: Outbox
) -> None:
    client.post("/sign-in", {"email": ADDRESS}, headers={"user-agent": "Call +1 555 0100 Firefox/"})

    # Fewer digits could be the code's, or the Message-ID's.
    assert "555 0100" not in mailoutbox[0].message().as_string()


def test_the_mail_goes_to_the_address_that_the_person_has(
    client: Client, ada: User, mailoutbox: Outbox
) -> None:
    ask(client, "ADA@Example.org")

    assert mailoutbox[0].to == [ADDRESS]


def test_the_database_keeps_neither_link_nor_code(
    client: Client, ada: User, mailoutbox: Outbox
) -> None:
    mail = mailed(client, mailoutbox, ADDRESS)

    kept = str(SignInToken.objects.values().get())
    assert mail.token not in kept
    assert mail.code not in kept


# The link.


def test_the_link_signs_in_after_a_press_of_the_button(
    client: Client, ada: User, mailoutbox: Outbox
) -> None:
    mail = mailed(client, mailoutbox, ADDRESS)
    other_device = Client()

    page = other_device.get(mail.path)
    assert "Sign in as ada?" in page.text
    assert who(other_device) is None

    response = other_device.post(mail.path)
    assert (response.status_code, response["Location"]) == (302, "/")
    assert who(other_device) == str(ada.pk)
    assert who(client) is None


def test_opening_the_link_ten_times_consumes_nothing(
    client: Client, ada: User, mailoutbox: Outbox
) -> None:
    mail = mailed(client, mailoutbox, ADDRESS)

    for _time in range(10):
        assert Client().get(mail.path).status_code == 200
        assert Client().head(mail.path).status_code == 200
        assert Client().options(mail.path).status_code == 200

    assert client.post(mail.path)["Location"] == "/"
    assert who(client) == str(ada.pk)


def test_what_became_of_a_link_is_read_once(client: Client, ada: User, mailoutbox: Outbox) -> None:
    mail = mailed(client, mailoutbox, ADDRESS)

    with CaptureQueriesContext(connection) as queries:
        assert Client().get(mail.path).status_code == 200

    assert sum("accounts_signintoken" in query["sql"] for query in queries) == 1


def test_a_used_link_is_over(client: Client, ada: User, mailoutbox: Outbox) -> None:
    mail = mailed(client, mailoutbox, ADDRESS)
    client.post(mail.path)
    stranger = Client()

    for response in (stranger.get(mail.path), stranger.post(mail.path)):
        assert response.status_code == 410
        assert "used up" in response.text
        assert "Ask for a new one" in response.text
    assert who(stranger) is None


def test_an_expired_link_is_over(client: Client, ada: User, mailoutbox: Outbox) -> None:
    mail = mailed(client, mailoutbox, ADDRESS)
    expire()

    for response in (client.get(mail.path), client.post(mail.path)):
        assert response.status_code == 410
        assert "This link has expired" in response.text
    assert who(client) is None


@pytest.mark.parametrize("token", ["x", "%00", "%FF", "é", "x" * 5000])
def test_a_wrong_link_is_a_page_and_no_error(client: Client, token: str) -> None:
    for response in (client.get(f"/sign-in/{token}"), client.post(f"/sign-in/{token}")):
        assert response.status_code == 404
        assert "This link does not work" in response.text


def test_signing_in_ends_the_other_links_of_the_address(
    client: Client, ada: User, mailoutbox: Outbox
) -> None:
    first = mailed(client, mailoutbox, ADDRESS)
    second = mailed(client, mailoutbox, ADDRESS)
    assert Client().get(first.path).status_code == 200

    client.post(first.path)

    assert Client().get(second.path).status_code == 410


@pytest.mark.parametrize("change", [{"is_active": False}, {"email": "elsewhere@example.org"}])
def test_a_link_does_not_outlive_its_persons_right_to_it(
    client: Client, ada: User, mailoutbox: Outbox, change: dict[str, Any]
) -> None:
    mail = mailed(client, mailoutbox, ADDRESS)
    User.objects.update(**change)

    for page in (client.get(mail.path), client.post(mail.path)):
        assert (page.status_code, "sign nobody in" in page.text) == (410, True)
    assert who(client) is None
    # Nothing was used up, neither in fact nor in words.
    assert SignInToken.objects.open().count() == 1
    User.objects.update(is_active=True, email=ADDRESS)
    assert client.post(mail.path)["Location"] == "/"


@pytest.mark.parametrize("change", [{"is_active": False}, {"email": "elsewhere@example.org"}])
def test_a_code_does_not_outlive_its_persons_right_to_it(
    client: Client, ada: User, mailoutbox: Outbox, change: dict[str, Any]
) -> None:
    mail = mailed(client, mailoutbox, ADDRESS)
    User.objects.update(**change)

    # Who does not know the code learns nothing of the person.
    assert "That is not the code" in client.post("/sign-in/code", {"code": mail.wrong_code}).text
    page = client.post("/sign-in/code", {"code": mail.code})
    assert (page.status_code, "sign nobody in" in page.text) == (410, True)
    assert "used up" not in page.text
    assert who(client) is None


def test_the_session_is_a_new_one(client: Client, ada: User, mailoutbox: Outbox) -> None:
    mail = mailed(client, mailoutbox, ADDRESS)
    session = client.session
    session["kept"] = "yes"
    session.save()

    client.post(mail.path)

    assert client.session.session_key != session.session_key
    assert not client.session.exists(session.session_key)


@pytest.mark.parametrize("handle", ["ada", "babbage"])
def test_whoever_was_signed_in_before_is_signed_out_properly(
    client: Client, ada: User, mailoutbox: Outbox, handle: str
) -> None:
    mail = mailed(Client(), mailoutbox, ADDRESS)
    babbage = User.objects.create_user(email="b@example.org", handle="babbage")
    before = {"ada": ada, "babbage": babbage}[handle]
    client.force_login(before)
    session = client.session
    session["kept"] = "yes"
    session.save()
    left: list[User] = []

    def note(user: User, **_more: Any) -> None:
        left.append(user)

    warned = f"You are signed in as {handle} in this browser" in client.get(mail.path).text
    user_logged_out.connect(note)
    try:
        client.post(mail.path)
    finally:
        user_logged_out.disconnect(note)

    assert warned == (handle == "babbage")
    assert left == [before]
    assert who(client) == str(ada.pk)
    assert "kept" not in client.session
    assert not client.session.exists(session.session_key)


def test_the_page_of_a_link_tells_its_address_to_nobody(
    client: Client, ada: User, mailoutbox: Outbox
) -> None:
    mail = mailed(client, mailoutbox, ADDRESS)

    for response in (client.get(mail.path), client.get("/sign-in/unknown"), client.post(mail.path)):
        assert response["Referrer-Policy"] == "strict-origin"
        assert "no-store" in response["Cache-Control"]


def test_another_site_cannot_press_the_button(
    client: Client, ada: User, mailoutbox: Outbox
) -> None:
    """Otherwise it could sign visitors in as somebody else, whose data they then write."""
    mail = mailed(client, mailoutbox, ADDRESS)
    visitor = Client(enforce_csrf_checks=True)
    page = visitor.get(mail.path)
    token = re.search(r'csrfmiddlewaretoken" value="(\w+)"', page.text)
    assert token
    fields = {"csrfmiddlewaretoken": token[1]}

    assert visitor.post(mail.path, headers={"origin": "https://evil.example"}).status_code == 403
    assert visitor.post(mail.path).status_code == 403
    answer = visitor.post(mail.path, fields, headers={"origin": "http://testserver"})
    assert answer["Location"] == "/"


@pytest.mark.django_db(transaction=True)
def test_of_many_posts_at_once_one_signs_in(client: Client, ada: User, mailoutbox: Outbox) -> None:
    path = mailed(client, mailoutbox, ADDRESS).path
    clients = [Client() for _number in range(6)]

    answers = at_once(*(lambda one=one: one.post(path).status_code for one in clients))

    assert sorted(answers) == [302] + [410] * 5
    assert sum(who(one) is not None for one in clients) == 1


@pytest.mark.django_db(transaction=True)
def test_of_two_links_of_an_address_used_at_once_one_signs_in(
    client: Client, ada: User, mailoutbox: Outbox
) -> None:
    paths = [mailed(client, mailoutbox, ADDRESS).path for _number in range(4)]

    answers = at_once(*(lambda path=path: Client().post(path).status_code for path in paths))

    assert sorted(answers) == [302, 410, 410, 410]


# The code.


def test_the_code_signs_in_the_browser_that_asked(
    client: Client, ada: User, mailoutbox: Outbox
) -> None:
    mail = mailed(client, mailoutbox, ADDRESS)
    page = client.get("/sign-in/code")
    assert ADDRESS in page.text

    response = client.post("/sign-in/code", {"code": f" {mail.code[:3]} {mail.code[3:]} "})

    assert (response.status_code, response["Location"]) == (302, "/")
    assert who(client) == str(ada.pk)
    assert Client().get(mail.path).status_code == 410


def test_the_code_is_worth_nothing_in_another_browser(
    client: Client, ada: User, mailoutbox: Outbox
) -> None:
    mail = mailed(client, mailoutbox, ADDRESS)
    stranger, other = Client(), Client()

    assert stranger.post("/sign-in/code", {"code": mail.code})["Location"] == "/sign-in"
    ask(other, ADDRESS)
    assert "That is not the code" in other.post("/sign-in/code", {"code": mail.code}).text
    assert who(stranger) is who(other) is None


def test_a_forged_cookie_names_no_row(client: Client, ada: User, mailoutbox: Outbox) -> None:
    mail = mailed(client, mailoutbox, ADDRESS)
    cookie = client.cookies["sign_in"]
    assert (cookie["path"], cookie["httponly"], cookie["samesite"]) == ("/sign-in", True, "Lax")

    client.cookies["sign_in"] = cookie.value[:-1] + ("a" if cookie.value[-1] != "a" else "b")

    assert client.post("/sign-in/code", {"code": mail.code})["Location"] == "/sign-in"


def test_five_wrong_codes_end_code_and_link(client: Client, ada: User, mailoutbox: Outbox) -> None:
    mail = mailed(client, mailoutbox, ADDRESS)

    told = [client.post("/sign-in/code", {"code": mail.wrong_code}) for _time in range(4)]
    assert [page.status_code for page in told] == [200] * 4
    assert ["You can try 4 times more." in told[0].text, "once more" in told[3].text] == [True] * 2

    assert client.post("/sign-in/code", {"code": mail.wrong_code}).status_code == 410
    assert client.post("/sign-in/code", {"code": mail.code}).status_code == 410
    assert client.post(mail.path).status_code == 410
    assert who(client) is None


def test_the_fifth_code_may_be_the_right_one(client: Client, ada: User, mailoutbox: Outbox) -> None:
    mail = mailed(client, mailoutbox, ADDRESS)
    for _time in range(4):
        client.post("/sign-in/code", {"code": mail.wrong_code})

    assert client.post("/sign-in/code", {"code": mail.code})["Location"] == "/"


@pytest.mark.parametrize("code", ["", "12345", "1234567", "abcdef", "\uff11" * 6, "1" * 99, "\x00"])
def test_what_is_no_code_costs_no_try(
    client: Client, ada: User, mailoutbox: Outbox, code: str
) -> None:
    mail = mailed(client, mailoutbox, ADDRESS)

    for _time in range(6):
        page = client.post("/sign-in/code", {"code": code})
        assert "code" in page.context["form"].errors

    assert client.post("/sign-in/code", {"code": mail.code})["Location"] == "/"


def test_an_expired_code_is_over(client: Client, ada: User, mailoutbox: Outbox) -> None:
    mail = mailed(client, mailoutbox, ADDRESS)
    expire()

    page = client.post("/sign-in/code", {"code": mail.code})
    assert page.status_code == 410
    assert "This link has expired" in page.text


@pytest.mark.django_db(transaction=True)
def test_of_many_codes_tried_at_once_five_are_judged(
    client: Client, ada: User, mailoutbox: Outbox
) -> None:
    mail = mailed(client, mailoutbox, ADDRESS)
    cookie = client.cookies["sign_in"].value

    def guess() -> int:
        browser = Client()
        browser.cookies["sign_in"] = cookie
        return int(browser.post("/sign-in/code", {"code": mail.wrong_code}).status_code)

    answers = at_once(*[guess] * 9)

    # Who is judged wrong while the fifth comes in may find the row over when the page is made.
    assert set(answers) <= {200, 410}
    assert answers.count(410) >= 5
    assert SignInToken.objects.get().codes_tried == 5


@pytest.mark.django_db(transaction=True)
def test_link_and_code_used_at_once_sign_in_once(
    client: Client, ada: User, mailoutbox: Outbox
) -> None:
    mail = mailed(client, mailoutbox, ADDRESS)

    answers = at_once(
        lambda: client.post("/sign-in/code", {"code": mail.code}).status_code,
        lambda: Client().post(mail.path).status_code,
    )

    assert answers.count(302) == 1
    assert answers.count(410) == 1


# Where it leads.


@pytest.mark.parametrize("way", ["link", "code"])
def test_next_is_kept_through_the_mail(
    client: Client, ada: User, mailoutbox: Outbox, way: str
) -> None:
    mail = mailed(client, mailoutbox, ADDRESS, next="/jobs?page=2")

    if way == "link":
        response = Client().post(mail.path)
    else:
        response = client.post("/sign-in/code", {"code": mail.code})

    assert response["Location"] == "/jobs?page=2"


@pytest.mark.parametrize(
    "elsewhere",
    [
        *("https://evil.example/", "//evil.example/", "/\\evil.example/"),
        *("/sign-in", "/sign-in/code"),
        *("jobs", "job_list", "?x", "#x", "..", "\r\nSet-Cookie: x=1", "evil.example"),
    ],
)
def test_next_never_leads_out_of_forge_nor_to_an_error(
    client: Client, ada: User, mailoutbox: Outbox, elsewhere: str
) -> None:
    mail = mailed(client, mailoutbox, ADDRESS, next=elsewhere)
    reader = Client()

    assert reader.post(mail.path)["Location"] == "/"
    assert who(reader) == str(ada.pk)


def test_where_a_link_leads_is_judged_again_when_it_is_used(
    client: Client, ada: User, mailoutbox: Outbox
) -> None:
    mail = mailed(client, mailoutbox, ADDRESS)
    SignInToken.objects.update(leads_to="https://evil.example/")

    assert Client().post(mail.path)["Location"] == "/"


# The form.


def test_the_mail_form_comes_first(client: Client) -> None:
    page = client.get("/sign-in").text

    assert page.index("Mail me a sign-in link") < page.index("Sign in with a password")
    assert page.index('name="email"') < page.index('name="password"')


@pytest.mark.parametrize(
    "address",
    ["", "ada", "a\x00@example.org", f"{'a' * 65}@example.org", "a@b.org\r\nBcc: c@d.org"],
)
def test_a_wrong_address_is_said_at_the_field(
    client: Client, mailoutbox: Outbox, address: str
) -> None:
    page = ask(client, address)

    assert page.status_code == 200
    assert list(page.context["mail_form"].errors) == ["email"]
    assert not page.context["form"].is_bound
    assert mailoutbox == []


def test_the_page_for_the_code_needs_a_question_first(client: Client, ada: User) -> None:
    assert client.get("/sign-in/code")["Location"] == "/sign-in"

    client.force_login(ada)
    assert client.get("/sign-in/code")["Location"] == "/"


def test_what_is_old_is_swept(client: Client, ada: User, mailoutbox: Outbox) -> None:
    mail = mailed(client, mailoutbox, ADDRESS)
    expire(timedelta(hours=23))
    assert sweep()["tokens"] == 0
    assert client.get(mail.path).status_code == 410

    expire(timedelta(hours=2))
    forget_limits()
    assert sweep() == {"tokens": 1, "allowances": 0}
    assert client.get(mail.path).status_code == 404


@pytest.mark.django_db(transaction=True)
def test_sweeping_is_a_schedule_that_runs(client: Client, ada: User) -> None:
    # None that has come due by the clock since it was made.
    Schedule.objects.all().delete()
    make_built_in_schedules(using=connection.alias)
    ask(client, ADDRESS)
    expire(timedelta(days=2))
    due = Schedule.objects.filter(name="sign-in")
    assert due.update(next_at=Now() - timedelta(seconds=1)) == 1

    (task,) = Schedule.objects.tick()
    run_pending(TaskJob)

    task.refresh_from_db()
    assert (task.status, task.result) == ("completed", {"tokens": 1, "allowances": 0})
