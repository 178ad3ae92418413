"""Fixtures for every test."""

from tests.bare import bare_python, built
from tests.githttp import git_server
from tests.pgbouncer import pgbouncer
from tests.postmark import postmark
from tests.workers import jobs_settings, worker, worker_process

__all__ = [
    "bare_python",
    "built",
    "git_server",
    "jobs_settings",
    "pgbouncer",
    "postmark",
    "worker",
    "worker_process",
]
