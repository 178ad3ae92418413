"""Mails that tell people what became of their jobs, in their own language."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, transaction
from django.db.models import QuerySet
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import translation

from jobs.engine.conf import config

logger = logging.getLogger(__name__)

MAILER = "default"


@dataclass(frozen=True)
class Notification:
    """A sort of mail. One more of them is one more of these, its templates, and a choice."""

    name: str
    """Its templates are `jobs/mail/<name>.subject.txt`, `<name>.txt` and `<name>.html`."""
    choice: str
    """The person's column that says whether they want it."""

    def is_wanted_by(self, person: Any) -> bool:
        return bool(person.is_active and getattr(person, self.choice))

    def tell(self, job: QuerySet[Any], *, to: Any, words: Mapping[str, Any]) -> None:
        """Mail a person of the end of their job, in the transaction that ends it.

        `job` is its row, whose column `told` holds the notification that was sent last: the same
        is not sent again. A mail that cannot be made is logged, and keeps no job from its end.
        """
        try:
            with transaction.atomic(using=job.db):
                if self.is_wanted_by(to) and job.exclude(told=self.name).update(told=self.name):
                    _send(self.message(to, words))
        except (OperationalError, InterfaceError):
            raise
        except Exception:
            logger.exception("%s: nobody is told of it by mail", self.name)

    def message(self, person: Any, words: Mapping[str, Any]) -> EmailMultiAlternatives:
        """The mail in the person's language, or in Forge's where theirs is not known."""
        off = settings.FORGE_URL + person.switch_off_path(self.choice)
        told = {
            **words,
            "person": person,
            "host": urlsplit(settings.FORGE_URL).netloc,
            "site": settings.FORGE_URL,
            "switch_off": off,
            "preferences": settings.FORGE_URL + reverse("preferences"),
        }
        template = f"jobs/mail/{self.name}"
        with translation.override(person.language or settings.LANGUAGE_CODE):
            message = EmailMultiAlternatives(
                subject=_one_line(render_to_string(f"{template}.subject.txt", told)),
                body=render_to_string(f"{template}.txt", told),
                to=[person.email],
                headers=_headers(off),
            )
            message.attach_alternative(render_to_string(f"{template}.html", told), "text/html")
        message.tags = [self.name]  # type: ignore[attr-defined]
        return message


IMPORT_COMPLETED = Notification("import_completed", choice="mail_completed")
IMPORT_FAILED = Notification("import_failed", choice="mail_failed")


def _one_line(text: str) -> str:
    # Not split(), which takes the spaces for breaks at which French has no break.
    return " ".join(text.splitlines()).strip()


def _headers(switch_off: str) -> dict[str, str]:
    return {
        "Auto-Submitted": "auto-generated",
        "List-Unsubscribe": f"<{switch_off}>",
        # RFC 8058; a mail program heeds it where the address is https.
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
    }


def _send(message: EmailMultiAlternatives) -> None:
    send = partial(message.send, using=MAILER)
    if config().database == DEFAULT_DB_ALIAS:
        send()
    else:
        # The mail's row is in another database. If that is away, this commit has still happened.
        transaction.on_commit(send, robust=True)
