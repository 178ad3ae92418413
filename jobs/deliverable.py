"""Whether a worker will be able to hand a mail over: tried out before the mail is stored."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from django.utils import timezone

from jobs.attachments import Attachment
from jobs.models.email_job import EmailJob
from jobs.postmark_mail import payload
from jobs.smtp import carried, envelope

LONGEST_LINE = 998
"""Bytes in a line that every SMTP server takes (RFC 5322)."""


def check(columns: dict[str, Any], files: Iterable[Attachment]) -> None:
    """Raise ValueError unless the mail of this row can be made for each provider of Forge.

    It is made as the worker makes it, whichever provider is set up now: it may be another one then.
    """
    job = EmailJob(**columns, created_at=timezone.now())
    try:
        message = job.message([_light(one) for one in files])
        envelope(message)
        data = carried(message)
        json.dumps(payload(message, key=str(job.pk), stream="outbound"), allow_nan=False)
    except ValueError:
        raise
    except Exception as error:
        # The standard library's parser and writer of mails end in all sorts of them.
        raise ValueError(f"This makes no mail: {type(error).__name__}: {error}") from error
    longest = max(map(len, data.splitlines()), default=0)
    if longest > LONGEST_LINE:
        raise ValueError(
            f"The mail has a line of {longest} bytes, as in a header without blanks; "
            f"{LONGEST_LINE} are allowed."
        )


def _light(one: Attachment) -> Attachment:
    """Without the content of a file, which is written as base64 whatever it is."""
    is_mail = one.part or one.mimetype.partition("/")[0].strip().lower() == "message"
    return one if is_mail or one.alternative else replace(one, content=b"")
