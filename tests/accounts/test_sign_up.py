"""Somebody new makes an account by a mailed link, where the setting allows it."""

from typing import Any

import pytest
from django.core.mail import EmailMultiAlternatives
from django.test import Client

from accounts.models import User
from tests.accounts.at_once import at_once
from tests.accounts.mails import ask, mailed, who

Outbox = list[EmailMultiAlternatives]

pytestmark = pytest.mark.django_db
NEW = "babbage@example.org"


@pytest.fixture
def opened(settings: Any) -> None:
    settings.FORGE_SIGN_UP = "open"


@pytest.fixture
def for_domains(settings: Any) -> None:
    settings.FORGE_SIGN_UP = "domains"
    settings.FORGE_SIGN_UP_DOMAINS = frozenset({"example.org", "xn--bcher-kva.example"})


def test_sign_up_is_closed_unless_it_is_opened(client: Client, mailoutbox: Outbox) -> None:
    ask(client, NEW)

    assert mailoutbox == []


def test_somebody_new_chooses_a_handle_on_the_links_page(
    client: Client, mailoutbox: Outbox, opened: None
) -> None:
    mail = mailed(client, mailoutbox, NEW, next="/import")
    assert mailoutbox[0].subject.startswith("Your link to an account at ")
    page = client.get(mail.path)
    assert NEW in page.text
    assert not User.objects.exists()

    response = client.post(mail.path, {"handle": "babbage"})

    person = User.objects.get()
    assert (person.email, person.handle) == (NEW, "babbage")
    assert not (person.is_staff or person.is_superuser or person.has_usable_password())
    assert response["Location"] == "/import"
    assert who(client) == str(person.pk)
    assert Client().get(mail.path).status_code == 410


def test_the_code_leads_to_the_same_page(client: Client, mailoutbox: Outbox, opened: None) -> None:
    mail = mailed(client, mailoutbox, NEW, next="/import")

    response = client.post("/sign-in/code", {"code": mail.code})

    link = response["Location"]
    assert link.startswith("/sign-in/")
    assert Client().get(mail.path).status_code == 410
    assert client.post(link, {"handle": "babbage"})["Location"] == "/import"
    assert who(client) == str(User.objects.get().pk)


@pytest.mark.parametrize("handle", ["", "jobs", "a b", "ADA", "a\x00", "x" * 40])
def test_a_wrong_or_taken_handle_is_said_at_the_field_and_spends_nothing(
    client: Client, mailoutbox: Outbox, opened: None, handle: str
) -> None:
    User.objects.create_user(email="ada@example.org", handle="ada")
    mail = mailed(client, mailoutbox, NEW)

    page = client.post(mail.path, {"handle": handle})
    assert page.status_code == 200
    assert list(page.context["form"].errors) == ["handle"]

    assert client.post(mail.path, {"handle": "babbage"}).status_code == 302


@pytest.mark.parametrize(
    ("address", "comes"),
    [
        (NEW, True),
        ("babbage@EXAMPLE.org", True),
        ("babbage@Bücher.example", True),
        ("babbage@xn--bcher-kva.example", True),
        ("babbage@sub.example.org", False),
        ("babbage@example.org.evil.example", False),
        ("babbage@notexample.org", False),
        ('"babbage@example.org"@evil.example', False),
    ],
)
def test_domains_are_meant_exactly(
    client: Client, mailoutbox: Outbox, for_domains: None, address: str, comes: bool
) -> None:
    ask(client, address)

    assert len(mailoutbox) == comes


def test_a_link_is_over_when_sign_up_was_closed_meanwhile(
    client: Client, mailoutbox: Outbox, opened: None, settings: Any
) -> None:
    mail = mailed(client, mailoutbox, NEW)
    settings.FORGE_SIGN_UP = "closed"

    page = client.post(mail.path, {"handle": "babbage"})

    assert (page.status_code, "sign nobody in" in page.text) == (410, True)
    assert not User.objects.exists()


def test_who_was_shut_out_does_not_come_back_as_somebody_new(
    client: Client, mailoutbox: Outbox, opened: None
) -> None:
    User.objects.create_user(email=NEW, handle="babbage", is_active=False)

    ask(client, NEW)

    assert mailoutbox == []


def test_a_new_account_ends_the_other_links_of_its_address(
    client: Client, mailoutbox: Outbox, opened: None
) -> None:
    first = mailed(client, mailoutbox, "babbage@example.org")
    second = mailed(Client(), mailoutbox, "Babbage@Example.org")

    client.post(first.path, {"handle": "babbage"})

    assert Client().get(second.path).status_code == 410
    assert User.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_links_of_one_new_address_used_at_once_make_one_person(
    client: Client, mailoutbox: Outbox, opened: None
) -> None:
    paths = [mailed(client, mailoutbox, NEW).path for _number in range(4)]

    def join(number: int) -> int:
        answer = Client().post(paths[number], {"handle": f"babbage-{number}"})
        return int(answer.status_code)

    answers = at_once(*(lambda number=number: join(number) for number in range(4)))

    assert sorted(answers) == [302, 410, 410, 410]
    assert User.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_handle_wanted_by_two_at_once_goes_to_one_and_the_other_may_choose_again(
    client: Client, mailoutbox: Outbox, opened: None
) -> None:
    paths = [mailed(client, mailoutbox, f"p{n}@example.org").path for n in range(4)]

    answers = at_once(
        *(lambda path=path: Client().post(path, {"handle": "babbage"}) for path in paths)
    )

    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 302]
    for answer in answers:
        if answer.status_code == 200:
            assert answer.context["form"].errors["handle"] == ["Somebody already has this handle."]
            path = answer.request["PATH_INFO"]
            assert Client().post(path, {"handle": f"b{paths.index(path)}"}).status_code == 302
    assert User.objects.count() == 4
