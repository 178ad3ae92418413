"""The processes of suspects, and what they cost the worker that starts them."""

import os
import signal
import threading

import pytest
from django.db import connections

from jobs.engine.isolation import Isolation
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
