"""One mailbox has one name here, and what no mail server takes is refused."""

import pytest

from accounts.addresses import domain_of, is_deliverable, plain, spellings
from accounts.models import User


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
        ("ada@[192.0.2.7]", True),
        ("ada@xn--zzzz.example", False),
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
