"""Who delivers mail, and from whom it comes, as the environment says; wrong values are told."""

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.mail import mailers as django_mailers

from forge import mailers
from jobs.outbox import OutboxBackend
from jobs.postmark import PostmarkBackend
from jobs.smtp import SmtpBackend
from tests.forge_process import ROOT, run


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POSTMARK_SERVER_TOKEN", "POSTMARK_API_URL", "POSTMARK_MESSAGE_STREAM"):
        monkeypatch.delenv(name, raising=False)
    for name in ("SMTP_URL", "FORGE_MAIL_FROM", "ADMINS"):
        monkeypatch.delenv(name, raising=False)


def test_postmark_goes_before_smtp_and_smtp_before_the_outbox(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    found = []
    for name, value in (
        ("POSTMARK_SERVER_TOKEN", ""),
        ("SMTP_URL", "smtp://mail.example.org"),
        ("POSTMARK_SERVER_TOKEN", "abc-def"),
    ):
        monkeypatch.setenv(name, value)
        settings.MAILERS = mailers.mailers()
        found.append(type(django_mailers["delivery"]))
    assert found == [OutboxBackend, SmtpBackend, PostmarkBackend]


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("smtp://mail.example.org", {"host": "mail.example.org", "port": None}),
        ("smtp://[::1]:2525", {"host": "::1", "port": 2525}),
        ("smtp+tls://ada:p%40ss%3A%2F@mail.example.org:587", {"use_tls": True, "port": 587}),
        ("smtps://ada:p%40ss%3A%2F@mail.example.org/", {"use_ssl": True, "password": "p@ss:/"}),
        ("smtp://[fe80::1%25eth0]", {"host": "fe80::1%eth0"}),
        ("SMTP://Mail.Example.org.:25", {"host": "mail.example.org.", "port": 25}),
        ("smtp://bücher.example", {"host": "xn--bcher-kva.example"}),
        ("smtp://mail_server:25", {"host": "mail_server"}),
        ("smtp://10.0.0.7:", {"host": "10.0.0.7", "port": None}),
        ("smtp://a%40example.org:p%25%20q@mail", {"username": "a@example.org", "password": "p% q"}),
    ],
)
def test_smtp_url_says_how_the_server_is_reached(
    monkeypatch: pytest.MonkeyPatch, settings: Any, url: str, options: dict[str, Any]
) -> None:
    monkeypatch.setenv("SMTP_URL", url)
    settings.MAILERS = mailers.mailers()
    found = settings.MAILERS["delivery"]["OPTIONS"]
    assert {name: found[name] for name in options} == options
    assert found["timeout"] == 15
    assert isinstance(django_mailers["delivery"], SmtpBackend)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SMTP_URL", "mail.example.org"),
        ("SMTP_URL", "http://ada:hidden@mail.example.org"),
        ("SMTP_URL", "smtp://ada:hidden@"),
        ("SMTP_URL", "smtp://ada:hidden@mail.example.org:99999"),
        ("SMTP_URL", "smtp://ada:hidden@mail.example.org:0"),
        ("SMTP_URL", "smtp://ada:hidden@mail.example.org/path"),
        ("SMTP_URL", "smtp://ada:hidden@mail.example.org?ssl=1"),
        ("SMTP_URL", "smtp://hidden@mail.example.org"),
        ("SMTP_URL", "smtp://ada:hidden@[mail.example.org"),
        *(
            ("SMTP_URL", f"smtp://ada:hidden@{host}")
            for host in (
                *("mail example.org", "mail.exa\nmple.org", "mail.exa\tmple.org", "mail\x01.org"),
                *("mail..example.org", ".example.org", "-mail.example.org"),
                *("mail%20x.org", "mail.example.org\u200b", "mail.example.org,other.org"),
                *("a" * 64 + ".org", ".".join(["a" * 60] * 5), "999.1.1.1", "12345", "[::1", "[x]"),
                *(
                    "mail.example.org:+25",
                    "mail.example.org:25:26",
                    "mail.example.org:x",
                    "*",
                    "..",
                ),
                *("mail.example.org:-1", "mail.example.org:65536", ":25", "\udcff.org"),
            )
        ),
        *(
            ("SMTP_URL", f"smtp://{account}@mail.example.org")
            for account in (
                *(":", "", "ada:", ":hidden", "ada:hidden%", "ada:hidden%zz", "ada:hidden%ff"),
                *(
                    "ada:hidden%c3%a9",
                    "adä:hidden",
                    "ada:hidden%00",
                    "ada:hidden%0d%0a",
                    "ada:hidden/",
                ),
                *("ada:hidden#", "ada:hidden?", "a%20\nb:hidden"),
            )
        ),
        ("SMTP_URL", "smtp+ssl://ada:hidden@mail.example.org"),
        ("SMTP_URL", "smtp:ada:hidden@mail.example.org"),
        ("SMTP_URL", "smtp:/mail.example.org"),
        ("SMTP_URL", "://hidden"),
        ("SMTP_URL", "$HIDDEN"),
        ("POSTMARK_MESSAGE_STREAM", "out bound"),
        ("POSTMARK_MESSAGE_STREAM", "outbound/x"),
        ("POSTMARK_MESSAGE_STREAM", "-outbound"),
        ("POSTMARK_MESSAGE_STREAM", "größe"),
        ("POSTMARK_MESSAGE_STREAM", "o\nb"),
        ("POSTMARK_MESSAGE_STREAM", "$OUT"),
        ("POSTMARK_MESSAGE_STREAM", "s" * 101),
        ("POSTMARK_API_URL", "https://ada:hidden@api.postmarkapp.com"),
        ("POSTMARK_API_URL", "https://api..postmarkapp.com"),
        ("POSTMARK_API_URL", "https://api.post\nmarkapp.com"),
        ("POSTMARK_SERVER_TOKEN", "hidden\x01token"),
        ("POSTMARK_SERVER_TOKEN", "hidden token"),
        ("POSTMARK_SERVER_TOKEN", "hiddentöken"),
        ("POSTMARK_API_URL", "api.postmarkapp.com"),
        ("POSTMARK_API_URL", "ftp://api.postmarkapp.com"),
        ("POSTMARK_API_URL", "https://api.postmarkapp.com?x=1"),
        ("FORGE_MAIL_FROM", "Forge"),
        ("FORGE_MAIL_FROM", "a@example.org, b@example.org"),
        ("ADMINS", "ada@example.org,bob"),
        ("ADMINS", "=@["),
        ("ADMINS", "ada@example.org;bob@example.org"),
        ("ADMINS", "ada@example.org bob@example.org"),
        ("ADMINS", ",".join(f"n{n}@example.org" for n in range(51))),
        ("ADMINS", "$ADA"),
        ("FORGE_MAIL_FROM", "=?utf-8?q??="),
        ("FORGE_MAIL_FROM", "a" * 65 + "@example.org"),
        ("FORGE_MAIL_FROM", "ada@" + ".".join(["a" * 60] * 5)),
        ("FORGE_MAIL_FROM", "n" * 240 + " <ada@example.org>"),
        ("FORGE_MAIL_FROM", "😀" * 120 + " <ada@example.org>"),
        ("FORGE_MAIL_FROM", "Ada \udcff <ada@example.org>"),
        ("FORGE_MAIL_FROM", "Ada\nBob <ada@example.org>"),
    ],
)
def test_a_wrong_value_is_told_by_its_name_and_without_its_secret(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    if name in ("POSTMARK_API_URL", "POSTMARK_MESSAGE_STREAM"):
        monkeypatch.setenv("POSTMARK_SERVER_TOKEN", "abc")
    monkeypatch.setenv(name, value)
    with pytest.raises(ImproperlyConfigured) as told:
        mailers.mailers()
        mailers.mail_from("forge.example.org")
        mailers.admins()
    assert str(told.value).startswith(name)
    assert "hidden" not in str(told.value)


def test_an_empty_value_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As compose.yaml hands on what is not set."""
    names = ("SMTP_URL", "FORGE_MAIL_FROM", "POSTMARK_API_URL", "POSTMARK_MESSAGE_STREAM", "ADMINS")
    for name in names:
        monkeypatch.setenv(name, " ")
    monkeypatch.setenv("POSTMARK_SERVER_TOKEN", "abc")
    options = mailers.mailers()["delivery"]["OPTIONS"]
    assert options["api_url"] == "https://api.postmarkapp.com"
    assert options["stream"] == "outbound"
    assert mailers.mail_from("forge.example.org") == "Forge <forge@forge.example.org>"
    assert mailers.admins() == []


def test_a_wrong_value_is_a_sentence_and_no_traceback() -> None:
    done = run(ROOT / "manage.py", "check", SMTP_URL="http://ada:hidden@mail.example.org")
    assert done.returncode == 1
    assert "SMTP_URL must be an address as in smtp+tls://" in done.stderr
    assert "Traceback" not in done.stderr and "hidden" not in done.stderr


def test_mail_comes_from_the_host_of_forge_unless_it_is_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for host, address in (
        ("forge.example.org", "Forge <forge@forge.example.org>"),
        ("bücher.example", "Forge <forge@xn--bcher-kva.example>"),
        ("127.0.0.1", "Forge <forge@localhost>"),
        ("[::1]", "Forge <forge@localhost>"),
        ("localhost", "Forge <forge@localhost>"),
    ):
        assert mailers.mail_from(host) == address
    monkeypatch.setenv("FORGE_MAIL_FROM", "Zoë's Forge <mail@example.org>")
    assert mailers.mail_from("forge.example.org") == "Zoë's Forge <mail@example.org>"


def test_admins_are_bare_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mailers.admins() == []
    monkeypatch.setenv("ADMINS", "ada@example.org, Bob <bob@example.org>,")
    assert mailers.admins() == ["ada@example.org", "bob@example.org"]
