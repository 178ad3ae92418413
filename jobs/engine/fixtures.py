"""pytest fixtures over jobs.engine.testing: `pytest_plugins = ["jobs.engine.fixtures"]`."""

from collections.abc import Callable, Iterator

import pytest

from jobs.engine import testing
from jobs.engine.lifecycle import Job


@pytest.fixture
def run_pending(db: None) -> Callable[..., list[Job]]:  # noqa: ARG001 - asks for the database
    """`run_pending(*kinds, future=False)` of jobs.engine.testing, with the database."""
    return testing.run_pending


@pytest.fixture
def inline_jobs(transactional_db: None) -> Iterator[None]:  # noqa: ARG001 - asks for commits
    """Every job runs as soon as the transaction that enqueued it commits."""
    with testing.inline():
        yield
