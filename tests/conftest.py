"""Fixtures for every test."""

from tests.githttp import git_server

__all__ = ["git_server"]
