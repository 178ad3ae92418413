"""Addresses: what a server takes is kept as it was meant, what none takes is refused."""

import pytest

from jobs.mail_addresses import bare, normal


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("ada@example.org", "ada@example.org"),
        ("<ada@example.org>", "ada@example.org"),
        ("Ada Lovelace <ada@example.org>", "Ada Lovelace <ada@example.org>"),
        ('"Lovelace, Ada" <ada@example.org>', '"Lovelace, Ada" <ada@example.org>'),
        ('"Ada \\"Countess\\"" <ada@example.org>', '"Ada \\"Countess\\"" <ada@example.org>'),
        ("Zoë Ångström <zoe@example.org>", "Zoë Ångström <zoe@example.org>"),
        ("=?utf-8?q?Zo=C3=AB?= <zoe@example.org>", "Zoë <zoe@example.org>"),
        ('"john doe"@example.org', '"john doe"@example.org'),
        ("ada@bücher.example", "ada@xn--bcher-kva.example"),
        # IDNA 2008: the older standard made another domain of it.
        ("ada@straße.de", "ada@xn--strae-oqa.de"),
        ("ada@例え.jp", "ada@xn--r8jz45g.jp"),
        ("root@localhost", "root@localhost"),
        ("a" * 64 + "@example.org", "a" * 64 + "@example.org"),
        ("ada+forge@mail.example.org", "ada+forge@mail.example.org"),
    ],
)
def test_an_address_is_kept_as_it_was_meant(given: str, kept: str) -> None:
    assert normal(given) == kept
    assert normal(kept) == kept


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("", "empty"),
        ("ada", "no domain"),
        ("ada@", ""),
        ("@example.org", ""),
        ("ada@b@example.org", ""),
        ("ada..b@example.org", ""),
        ("a" * 65 + "@example.org", "64 characters"),
        ("a" * 300 + "@example.org", "64 characters"),
        ("ada@" + "a." * 130 + "org", "254"),
        ("ada@" + "b" * 64 + ".org", "domain"),
        ("ada@-example.org", "domain"),
        ("ada@exa_mple.org", "domain"),
        ("ada@example..org", ""),
        ("ada@[127.0.0.1]", "domain"),
        ("ада@example.org", "ASCII"),
        ("ada@example.org\r\nBcc: eve@example.org", "line break"),
        ("Ada\n <ada@example.org>", "line break"),
        ("Ada\0 <ada@example.org>", ""),
        ("Lovelace, Ada <ada@example.org>", "needs quotes"),
        ("ada@example.org, eve@example.org", "more than one"),
        ("undisclosed-recipients:;", "group"),
        ("Ada ada@example.org", ""),
        ("=?utf-8?q??=", "cannot be read"),
        ("=@[", ""),
        (".@[)-a\xad?=.", ""),
    ],
)
def test_what_no_server_takes_is_refused_by_name(given: str, why: str) -> None:
    with pytest.raises(ValueError, match="is no e-mail address") as refusal:
        normal(given)
    assert why in str(refusal.value)
    assert "\r" not in str(refusal.value) and "\n" not in str(refusal.value)


def test_the_bare_address_has_no_name() -> None:
    assert bare('"Lovelace, Ada" <ada@example.org>') == "ada@example.org"
