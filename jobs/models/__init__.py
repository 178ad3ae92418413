"""Forge's kinds of work, one file each."""

from jobs.models.email_job import EmailJob
from jobs.models.import_job import ImportJob
from jobs.models.mail_pace import MailPace

__all__ = ["EmailJob", "ImportJob", "MailPace"]
