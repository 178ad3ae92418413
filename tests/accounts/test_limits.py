"""Limits are counted in the database and exact."""

from datetime import timedelta

import pytest
from django.db.models import F

from accounts.limits import NO_WAIT, Limit, TooMany, demand, give_back, sweep_allowances, take
from accounts.models import Allowance
from tests.accounts.at_once import at_once

THREE = Limit("three", 3, timedelta(hours=3))


def age(by: timedelta) -> None:
    Allowance.objects.update(used_until=F("used_until") - by)


@pytest.mark.django_db
def test_a_limit_lets_so_many_through_and_says_how_long_to_wait() -> None:
    assert [take(THREE, "ada") for _use in range(3)] == [NO_WAIT] * 3

    wait = take(THREE, "ada")
    assert timedelta(minutes=59) < wait <= timedelta(hours=1)
    with pytest.raises(TooMany) as refused:
        demand(THREE, "ada")
    assert timedelta(minutes=59) < refused.value.wait <= timedelta(hours=1)


@pytest.mark.django_db
def test_what_was_refused_is_not_counted() -> None:
    for _use in range(9):
        take(THREE, "ada")

    age(timedelta(hours=1))
    assert take(THREE, "ada") == NO_WAIT
    assert take(THREE, "ada") > NO_WAIT


@pytest.mark.django_db
def test_time_gives_one_use_after_the_other_back_and_no_more_than_there_were() -> None:
    for _use in range(3):
        take(THREE, "ada")

    age(timedelta(days=9))

    assert [bool(take(THREE, "ada")) for _use in range(4)] == [False, False, False, True]


@pytest.mark.django_db
def test_everybody_and_every_limit_has_an_allowance_of_its_own() -> None:
    other = Limit("other", 3, timedelta(hours=3))
    for _use in range(3):
        take(THREE, "ada")

    assert take(THREE, "babbage") == take(other, "ada") == NO_WAIT


@pytest.mark.django_db
def test_a_use_can_be_handed_back() -> None:
    for _use in range(3):
        take(THREE, "ada")

    give_back(THREE, "ada")

    assert take(THREE, "ada") == NO_WAIT
    assert take(THREE, "ada") > NO_WAIT


@pytest.mark.django_db
def test_the_table_names_nobody() -> None:
    take(THREE, "ada@example.org")

    assert "example" not in str(Allowance.objects.values().get())


@pytest.mark.django_db
def test_a_sweep_removes_what_means_nothing_any_more() -> None:
    take(THREE, "ada")
    age(timedelta(hours=2))
    take(THREE, "babbage")

    assert sweep_allowances() == 1
    assert [bool(take(THREE, "babbage")) for _use in range(3)] == [False, False, True]


@pytest.mark.django_db(transaction=True)
def test_of_many_at_once_as_many_come_through_as_are_allowed() -> None:
    answers = at_once(*[lambda: [take(THREE, "ada") for _use in range(3)]] * 8)
    waits = [wait for answer in answers for wait in answer]

    assert len(waits) == 24
    assert waits.count(NO_WAIT) == 3
