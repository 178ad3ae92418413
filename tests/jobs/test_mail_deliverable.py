"""Whatever is accepted where it is sent, the worker can deliver, by SMTP and by Postmark."""

import base64
import email
import email.policy
from contextlib import suppress
from typing import Any

import pytest
from django.core.mail import EmailMultiAlternatives
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from jobs.engine.testing import run_pending
from jobs.mail_columns import MOST_BYTES, MOST_HEADER_BYTES
from jobs.models import EmailJob
from tests.jobs.mailing import SmtpSink, fresh, mail, queued, sent, smtp_mailer
from tests.postmark import Postmark

pytestmark = pytest.mark.django_db

LOCALS = [
    *("ada", "a.b", "a+b", '"a b"', '"a\\"b"', '"a\\\\b"', '""', '"a@b"', '"é"', "é", "a" * 64),
    *('"a\tb"', '"\\\x01"', "ada(c)", "(c)ada", "a..b", "!#$%&'*/=?^_`{|}~", '"<a>"', '"a;b"'),
    *('"a".b', '"\u200f"', '"a\x7f"', '"a,b"', "a" * 300, ""),
]
DOMAINS = [
    *("example.org", "bücher.example", "EXAMPLE.org", "xn--bcher-kva.example", "example.org."),
    *("a" * 63 + ".org", "a" * 64 + ".org", "(c)example.org", "example . org", "[127.0.0.1]"),
    *("-a.org", "a_b.org", "localhost", "faß.de", "\u0130.org", "\uff11.org", "example。org", ""),
    *(".".join(["a" * 60] * 4), "😀.example", "\u200fexample.org", "*.org", "x.123"),
]
NAMES = [
    *("", "Ada", '"Lovelace, Ada"', "Zoë", "😀", "Ada (the) L", '"a\\"b"', "x" * 300, "é" * 300),
    *("é " * 150, "Ada\u200f", "\u202eadA", "=?utf-8?q?=41?=", "=?utf-8?q?=0a?=", "half \ud800"),
    *("=?utf-8?b?AAA=?=", "=?utf-8?q?a=0d=0aBcc:_x@y.z?=", "a\x01b", '"a\x0b"', '"\u2028"'),
    *('" "', "=?x-bad?q?=41?=", "=?utf-8?q?=ff?=", ".", "a\0b", "a\r\nb", "a" * 1200, "group: b"),
]
ADDRESSES = st.one_of(
    st.builds("{}@{}".format, st.sampled_from(LOCALS), st.sampled_from(DOMAINS)),
    st.builds(
        "{}{}<{}@{}>{}".format,
        st.sampled_from(NAMES),
        st.sampled_from(["", " "]),
        st.sampled_from(LOCALS),
        st.sampled_from(DOMAINS),
        st.sampled_from(["", "(c)", ";"]),
    ),
)
WORDS = st.lists(st.sampled_from([*NAMES, *LOCALS, *DOMAINS, " ", "\t"]), max_size=8).map("".join)
HEADERS = st.sampled_from(
    [
        *("X-Engine", "From", "To", "Cc", "Reply-To", "Sender", "Date", "Message-ID", "Expires"),
        *("References", "List-Unsubscribe", "Content-Type", "MIME-Version", "X " * 40),
    ]
)
MAILS = st.fixed_dictionaries(
    {},
    optional={
        "to": st.lists(ADDRESSES, min_size=1, max_size=2),
        "cc": st.lists(ADDRESSES, max_size=1),
        "from_email": ADDRESSES,
        "reply_to": st.lists(ADDRESSES, max_size=2),
        "subject": WORDS,
        "headers": st.dictionaries(HEADERS, st.one_of(WORDS, ADDRESSES), max_size=1),
        "attachments": st.lists(
            st.tuples(WORDS, st.just(b"\xff"), st.sampled_from(["text/plain", "image/png", "x"])),
            max_size=1,
        ),
        "alternatives": st.lists(
            st.tuples(
                WORDS,
                st.sampled_from(["text/html", "text/calendar; method=REQUEST", "a/b", "text"]),
            ),
            max_size=3,
        ),
    },
)


@pytest.fixture
def by_either(settings: Any, start_smtp: Any, postmark: Postmark) -> tuple[SmtpSink, Postmark, Any]:
    """A real SMTP server, an imitated Postmark, and what makes one of the two the provider."""
    sink, controller = start_smtp()
    mailer = {"smtp": smtp_mailer(controller), "postmark": postmark.mailer()}

    def choose(name: str) -> None:
        settings.MAILERS = queued(mailer[name])

    return sink, postmark, choose


@hypothesis_settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(options=MAILS)
def test_whatever_is_accepted_can_be_delivered(by_either: Any, options: dict[str, Any]) -> None:
    sink, postmark, choose = by_either
    to = options.pop("to", ["ada@example.org"])
    for name, received in (("smtp", sink.received), ("postmark", postmark.mails)):
        choose(name)
        EmailJob.objects.all().delete()
        received.clear()
        with suppress(ValueError):
            mail(*to, **options).send()
        jobs = list(EmailJob.objects.all())
        run_pending(EmailJob)
        for job in map(fresh, jobs):
            in_time = "not sent in time" not in job.error_message
            assert not in_time or job.status == "completed", job.error_message
            assert not in_time or len(received) == 1


def test_the_words_above_make_mails_that_are_accepted(by_either: Any) -> None:
    """So that the rule above is about something."""
    _sink, _postmark, choose = by_either
    choose("smtp")
    for to in ("é " * 150 + "<!#$%&'*/=?^_`{|}~@faß.de>", "Ada\u200f <ada@localhost>"):
        job = sent(to, subject="é" * 300, headers={"Reply-To": "x" * 300 + " <a.b@EXAMPLE.org>"})
        run_pending(EmailJob)
        assert fresh(job).status == "completed"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"to": ['""@example.org']}, "nothing stands before the @"),
        ({"to": ["a" * 1200 + " <ada@example.org>"]}, "998 are allowed"),
        ({"headers": {"List-Unsubscribe": "=?utf-8?q?a=0d=0aBcc:_eve@x.y?="}}, "linefeed"),
        ({"headers": {"From": "a: b@example.org, c@example.org;"}}, "no e-mail address"),
        ({"subject": "half a \ud800"}, "half a character"),
        ({"from_email": "Ada \ud800 <ada@example.org>"}, "half a character"),
        ({"alternatives": [("x", "calendar")]}, "'calendar' is no type"),
        ({"alternatives": [(b"\xff", "text/calendar")]}, "text/calendar is no UTF-8"),
    ],
)
def test_what_no_worker_could_deliver_is_refused_with_the_reason(
    by_either: Any, options: dict[str, Any], told: str
) -> None:
    _sink, _postmark, choose = by_either
    choose("smtp")
    to = options.pop("to", ["ada@example.org"])
    with pytest.raises(ValueError, match=told):
        mail(*to, **options).send()
    assert not EmailJob.objects.exists()


@pytest.mark.parametrize("only", ["cc", "bcc"])
@pytest.mark.parametrize("name", ["smtp", "postmark"])
def test_a_mail_to_nobody_but_copies_goes_to_them_and_to_nobody_else(
    by_either: Any, name: str, only: str
) -> None:
    sink, postmark, choose = by_either
    choose(name)
    job = sent_to_copies(**{only: ["eve@example.org", "bob@example.org"]})
    run_pending(EmailJob)
    assert fresh(job).status == "completed", fresh(job).error_message
    if name == "postmark":
        (got,) = postmark.mails
        told = {field: got[field] for field in ("To", "Cc", "Bcc") if field in got}
        assert told == {only.capitalize(): "eve@example.org, bob@example.org"}
        return
    (envelope,) = sink.received
    assert envelope.rcpt_tos == ["eve@example.org", "bob@example.org"]
    shown = b"eve@example.org" in envelope.content
    assert shown == (only == "cc")


def sent_to_copies(**options: Any) -> EmailJob:
    EmailMultiAlternatives("Hello", "A line.", **options).send()
    return EmailJob.objects.get()


# How large a mail may be.


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize(
    "options",
    [
        {"subject": "s" * (MOST_HEADER_BYTES + 1)},
        {"headers": {"X-Engine": "word " * (MOST_HEADER_BYTES // 5)}},
        {"headers": {f"X-Engine-{n}": "word " * 200 for n in range(100)}},
        {"cc": ["é" * 2000 + f" <a{n}@example.org>" for n in range(40)]},
        {"attachments": [("n" * (MOST_HEADER_BYTES + 1), b"x", "image/png")]},
    ],
)
def test_headers_have_a_limit_of_their_own(options: dict[str, Any]) -> None:
    """Writing them takes a time that grows with their square."""
    with pytest.raises(ValueError, match=rf"headers have \d+ bytes; {MOST_HEADER_BYTES} are"):
        mail(**options).send()


@pytest.mark.usefixtures("queue")
def test_headers_count_for_the_size_of_a_mail() -> None:
    file = ("a.bin", b"x" * (MOST_BYTES - 1000), "application/octet-stream")
    assert sent(attachments=[file]).attachments[0]["size"] == MOST_BYTES - 1000
    with pytest.raises(ValueError, match=rf"The mail has \d+ bytes; {MOST_BYTES} are allowed"):
        mail(attachments=[file], headers={"X-Engine": "word " * 200}).send()
    with pytest.raises(ValueError, match=rf"The mail has \d+ bytes; {MOST_BYTES} are allowed"):
        mail(attachments=[file], subject="s" * 1000).send()


# Several versions of a body.


INVITATION = "BEGIN:VCALENDAR\r\nSUMMARY:Größe\r\nEND:VCALENDAR\r\n"
AMP = "<!doctype html><html ⚡4email></html>"


def versions(sink: SmtpSink) -> list[tuple[str, str]]:
    """(type, content) of the mail that arrived, in its order."""
    (envelope,) = sink.received
    assert isinstance(envelope.content, bytes)
    got: Any = email.message_from_bytes(envelope.content, policy=email.policy.default)
    if not got.is_multipart():
        return [(got.get_content_type(), got.get_content().strip())]
    assert got.get_content_type() == "multipart/alternative"
    return [(part.get_content_type(), part.get_content().strip()) for part in got.iter_parts()]


def delivered(choose: Any, name: str, **options: Any) -> EmailJob:
    choose(name)
    job = sent(**options)
    run_pending(EmailJob)
    job = fresh(job)
    assert job.status == "completed", job.error_message
    return job


def test_an_invitation_is_an_alternative_with_its_type_charset_and_place(by_either: Any) -> None:
    sink, _postmark, choose = by_either
    delivered(
        choose,
        "smtp",
        body="Come.\n",
        alternatives=[
            (AMP, "text/x-amp-html"),
            ("<p>Come.</p>", "text/html"),
            (INVITATION, "text/calendar; method=REQUEST"),
            (b"\0\xff", "application/x-card"),
        ],
    )
    (envelope,) = sink.received
    got: Any = email.message_from_bytes(envelope.content, policy=email.policy.default)  # type: ignore[arg-type]
    assert got.get_content_type() == "multipart/alternative"
    text, amp, page, calendar, card = got.iter_parts()
    assert (text.get_content_type(), page.get_content_type()) == ("text/plain", "text/html")
    assert (amp.get_content_type(), amp.get_content().strip()) == ("text/x-amp-html", AMP)
    assert calendar.get_content_type() == "text/calendar"
    parameters = dict(calendar["Content-Type"].params)
    assert parameters == {"method": "REQUEST", "charset": "utf-8"}
    assert calendar.get_content().splitlines() == INVITATION.splitlines()
    assert card.get_content() == b"\0\xff"
    assert all(part.get_content_disposition() is None for part in (text, amp, page, calendar))


@pytest.mark.parametrize(
    ("body", "subtype", "alternatives", "arrived"),
    [
        ("# Hi", "markdown", [], [("text/markdown", "# Hi")]),
        ("Hi", "plain", [("# Hi", "text/markdown")], [("text/plain", "Hi"), ("text/markdown", "# Hi")]),
        ("<p>", "html", [("Hi", "text/plain")], [("text/html", "<p>"), ("text/plain", "Hi")]),
        (
            "Hi",
            "plain",
            [("<b>", "text/html"), ("<p>", "text/html")],
            [("text/plain", "Hi"), ("text/html", "<b>"), ("text/html", "<p>")],
        ),
        ("", "plain", [("<p>", "text/html")], [("text/html", "<p>")]),
        (
            "",
            "plain",
            [("<amp>", "text/x-amp-html"), ("<p>", "text/html")],
            [("text/x-amp-html", "<amp>"), ("text/html", "<p>")],
        ),
    ],
)  # fmt: skip
def test_every_version_arrives_by_smtp_in_its_order(
    by_either: Any, body: str, subtype: str, alternatives: Any, arrived: list[tuple[str, str]]
) -> None:
    sink, _postmark, choose = by_either
    choose("smtp")
    message = mail(body=body, alternatives=alternatives)
    message.content_subtype = subtype
    message.send()
    run_pending(EmailJob)
    assert versions(sink) == arrived


def test_postmark_gets_other_versions_as_files(by_either: Any) -> None:
    _sink, postmark, choose = by_either
    delivered(
        choose,
        "postmark",
        body="Come.\n",
        alternatives=[
            ("<b>Come.</b>", "text/html"),
            ("<p>Come.</p>", "text/html"),
            (INVITATION, "text/calendar; method=REQUEST"),
        ],
        attachments=[("notes.txt", "x", "text/plain")],
    )
    (got,) = postmark.mails
    assert (got["TextBody"], got["HtmlBody"]) == ("Come.\n", "<p>Come.</p>")
    told = [(one["Name"], one["ContentType"]) for one in got["Attachments"]]
    assert told == [
        ("alternative.html", "text/html; charset=utf-8"),
        ("alternative.ics", "text/calendar; method=REQUEST; charset=utf-8"),
        ("notes.txt", "text/plain"),
    ]
    assert base64_text(got["Attachments"][1]) == INVITATION


def base64_text(attachment: dict[str, str]) -> str:
    return base64.b64decode(attachment["Content"]).decode()


def test_postmark_gets_the_text_that_stands_beside_a_body_of_html(by_either: Any) -> None:
    _sink, postmark, choose = by_either
    choose("postmark")
    message = mail(body="<p>", alternatives=[("Hi", "text/plain")])
    message.content_subtype = "html"
    message.send()
    run_pending(EmailJob)
    (got,) = postmark.mails
    assert (got["TextBody"], got["HtmlBody"], got.get("Attachments")) == ("Hi", "<p>", None)


def test_other_versions_go_when_the_mail_is_delivered(
    by_either: Any, data_dir: Any, django_capture_on_commit_callbacks: Any
) -> None:
    _sink, _postmark, choose = by_either
    with django_capture_on_commit_callbacks(execute=True):
        job = delivered(choose, "smtp", alternatives=[(INVITATION, "text/calendar")])
    assert [one["alternative"] for one in job.attachments] == ["after"]
    assert not (data_dir / "mail" / str(job.pk)).exists()


def test_a_row_of_an_older_forge_has_its_files_attached(by_either: Any) -> None:
    sink, _postmark, choose = by_either
    choose("smtp")
    job = sent(attachments=[("a.png", b"x", "image/png")])
    old = [{k: v for k, v in one.items() if k != "alternative"} for one in job.attachments]
    EmailJob.objects.filter(pk=job.pk).update(attachments=old)
    run_pending(EmailJob)
    (envelope,) = sink.received
    assert b'filename="a.png"' in envelope.content
