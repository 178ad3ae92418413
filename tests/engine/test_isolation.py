"""The processes of suspects, and what they cost the worker that starts them."""

import os
import signal
import threading
import time

import pytest
from django.db import connections

from jobs.engine.isolation import SECONDS_BEFORE_THE_NEXT, Body, Isolation
from jobs.engine.lifecycle import Job
from tests.kinds.models import Probe

pytestmark = pytest.mark.django_db(transaction=True)


def dies(_kind: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_suspect_that_dies_takes_no_connection_of_the_worker_along() -> None:
    over = threading.Event()
    kept: list[str] = []

    def ended(_kind: type[Job]) -> None:
        # Called in the thread that looked after the child.
        kept.extend(c.alias for c in connections.all(initialized_only=True) if c.connection)
        over.set()

    isolation = Isolation(dies, ended=ended)
    isolation.start(Probe)

    assert over.wait(30)
    assert kept == []
    assert len(isolation) == 0


def ends(_kind: str) -> None:
    """As when the keys of all suspects are taken."""


def fails(_kind: str) -> None:
    raise RuntimeError


@pytest.mark.parametrize("body", [ends, fails])
def test_a_child_that_leaves_suspects_keeps_its_seat_for_a_moment(body: Body) -> None:
    job = Probe.objects.enqueue()
    Probe.objects.filter(pk=job.pk).update(suspect=True)
    over = threading.Event()
    isolation = Isolation(body, ended=lambda _kind: over.set())
    assert isolation.wanted(Probe) == 1

    began = time.monotonic()
    isolation.start(Probe)

    assert isolation.wanted(Probe) == 0
    assert over.wait(30)
    assert time.monotonic() - began >= SECONDS_BEFORE_THE_NEXT
