"""Forge's kinds of work, one file each."""

from jobs.models.import_job import ImportJob

__all__ = ["ImportJob"]
