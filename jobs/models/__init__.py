"""Forge's kinds of work, one file each."""

from jobs.models.email_job import EmailJob
from jobs.models.import_job import ImportJob

__all__ = ["EmailJob", "ImportJob"]
