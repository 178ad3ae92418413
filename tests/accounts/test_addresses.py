"""One mailbox has one name here, and what no mail server takes is refused."""

import pytest
from django.core.exceptions import ValidationError

from accounts.addresses import domain_of, is_deliverable, plain, spellings
from accounts.forms import MailForm
from accounts.models import User
from jobs.mail_addresses import normal


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("Ada@Example.ORG", "Ada@example.org"),
        ("ada@Bücher.example", "ada@xn--bcher-kva.example"),
        ("ada@xn--bcher-kva.example", "ada@xn--bcher-kva.example"),
        ("ada@localhost", "ada@localhost"),
        ("ada@[192.0.2.7]", "ada@[192.0.2.7]"),
        ('"a@b"@example.org', '"a@b"@example.org'),
        ("nonsense", "nonsense"),
    ],
)
def test_a_plain_address_has_its_domain_as_dns_knows_it(address: str, told: str) -> None:
    assert plain(address) == told


def test_a_domain_is_what_stands_after_the_last_at_sign() -> None:
    assert domain_of('"evil@example.org"@Example.NET') == "example.net"


def test_both_spellings_are_known() -> None:
    both = {"ada@bücher.example", "ada@xn--bcher-kva.example"}

    assert (
        set(spellings("ada@bücher.example")) == set(spellings("ada@xn--bcher-kva.example")) == both
    )
    assert spellings("ada@example.org") == ["ada@example.org"]


@pytest.mark.parametrize(
    ("address", "goes"),
    [
        ("ada@example.org", True),
        (f"{'a' * 64}@example.org", True),
        (f"{'a' * 65}@example.org", False),
        (f"{'a' * 300}@example.org", False),
        ("ada@bücher.example", True),
        ("ada@[192.0.2.7]", False),
        ("ada@xn--zzzz.example", True),
        (f"ada@{'ü' * 60}.example", False),
        (f"ada@{'.'.join(['ü' * 50] * 5)}", False),
    ],
)
def test_what_no_mail_server_takes_is_known(address: str, goes: bool) -> None:
    assert is_deliverable(address) is goes


@pytest.mark.django_db
@pytest.mark.parametrize("kept", ["ada@bücher.example", "ada@xn--bcher-kva.example"])
@pytest.mark.parametrize("typed", ["ada@Bücher.example", "ADA@XN--BCHER-KVA.example"])
def test_a_person_is_found_by_either_spelling(kept: str, typed: str) -> None:
    ada = User.objects.create_user(email=kept, handle="ada")

    assert User.objects.at(typed) == ada
    assert User.objects.at("ada@example.org") is None


def test_letters_that_look_alike_are_one_address_as_when_a_person_is_looked_up() -> None:
    assert plain("boss@\uff4dail\ufe52example.org") == plain("boss@mail.example.org")


@pytest.mark.parametrize("local", ['"victim"', '"v\\ictim"', "v\\ictim"])
def test_a_mailbox_has_no_second_spelling_in_quotes(local: str) -> None:
    assert not is_deliverable(f"{local}@example.org")


TAKEN = [
    *("ada@example.org", "ADA@EXAMPLE.ORG", "ada_b+forge@example.org", "ada@localhost"),
    *("a!#$%&'*+/=?^_`{|}~-@example.org", "ada.=?utf-8?q?b?=@example.org"),
    # Domains in letters, composed or not, and what becomes ASCII: full width, unseen letters.
    *("ada@b\u00fccher.example", "ada@bu\u0308cher.example", "ada@B\u00dcCHER.example"),
    *("ada@stra\u00dfe.example", "ada@\u4f8b\u3048.jp", "ada@\u05d0.example"),
    *("ada@\uff45xample.org", "ada@\u212aate.example"),
    *("ada@exam\u200bple.org", "ada@b\u00fccher\u200b.example", "ada@exam\u00adple.org"),
    # Punycode, and what looks like it: an ASCII domain is as DNS has it.
    *("ada@xn--bcher-kva.example", "ada@XN--BCHER-KVA.example", "ada@xn--zzzz.example"),
    *("ada@xn--bcher-kva.\u4f8b\u3048.jp", "ada@ab--cd.example"),
    # As long as may be.
    f"{'a' * 64}@example.org",
    f"ada@{'b' * 63}.org",
    f"{'a' * 63}@{'.'.join(['b' * 61] * 3)}.org",
    f"ada@{'.'.join(['b' * 61] * 4)}.or",
]
REFUSED = [
    *("ada@[127.0.0.1]", "ada@[2001:db8::1]", "ada@[IPv6:2001:db8::1]"),
    *("", "ada", "ada@", "@example.org", "ada@b@example.org", "a da@example.org"),
    *(".ada@example.org", "ada.@example.org", "ada..b@example.org", "jo\\hn@example.org"),
    *("ada@.example.org", "ada@example..org", "ada@example.org.", "ada@b\u00fccher.example."),
    *("ada@-example.org", "ada@example-.org", "ada@example.-org", "ada@example.org-"),
    *("ada@exa_mple.org", "ada@b\u00fc_cher.example", "ada@-b\u00fccher.example"),
    # Before the @: letters beyond ASCII, also those of which an ASCII letter is the small one.
    *("\uff41da@example.org", "a\u200bda@example.org", "\u0430da@example.org"),
    *("\u212aate@example.org", "\u017fue@example.org", "ada\uff20example.org"),
    *("=?utf-8?q?ada?=@example.org", "=?utf-8?b?YWRh?=@example.org", "=?a?q?b?=.c@example.org"),
    # No domain in letters.
    *("ada@ab--cd.b\u00fccher.example", "ada@\u2603.example", "ada@a\u200dz.example"),
    *("ada@\u05d0a.example", f"ada@{'\u00fc' * 60}.example"),
    # Longer than may be.
    f"{'a' * 65}@example.org",
    f"ada@{'b' * 64}.org",
    f"ada@{'.'.join(['b' * 61] * 4)}.org",
    f"ada@{'.'.join(['\u00fc' * 50] * 5)}",
]
# What the queue takes from the code that mails, and no person has.
QUEUED_ALONE = [
    # Any number of spellings of one mailbox.
    *('"ada"@example.org', '"ada lovelace"@example.org', '"\\a\\d\\a"@example.org'),
    *("=?ada@example.org", "Ada <ada@example.org>"),
    # Another domain as soon as it is composed.
    "ada@\u0345\u0308.example",
    # Hosts in the network of the server.
    *("root@intranet", "ada@192.0.2.7"),
]


def a_form_takes(address: str) -> bool:
    return MailForm({"email": address}).is_valid()


def a_person_may_have(address: str) -> bool:
    try:
        User._meta.get_field("email").clean(address, None)
    except ValidationError:
        return False
    return True


def the_queue_takes(address: str) -> bool:
    try:
        normal(address)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    ("address", "goes", "queued"),
    [
        *((address, True, True) for address in TAKEN),
        *((address, False, False) for address in REFUSED),
        *((address, False, True) for address in QUEUED_ALONE),
    ],
)
def test_whom_the_forms_take_gets_mail(address: str, goes: bool, queued: bool) -> None:
    assert a_form_takes(address) is a_person_may_have(address) is goes
    assert the_queue_takes(address) is queued
    # A person is looked up and written to by the plain address.
    assert the_queue_takes(plain(address)) or not goes
