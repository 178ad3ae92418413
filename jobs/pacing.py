"""When the mails leave of a mailer that sends no more than so many a minute.

Each gets a moment of its own, and becomes due then. So a campaign that waits costs no claim more
than one for each mail, and stands in nobody's way.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db import router, transaction
from django.db.models import Q
from django.db.models.functions import Now

from jobs.models.mail_pace import MailPace

if TYPE_CHECKING:
    from jobs.models.email_job import EmailJob

SECONDS_LATE = 1.0
MOST_AT_ONCE = 500


def seconds_late(per_minute: int) -> float:
    """A mail that comes later than that for its moment, as after a pause, gets another one.

    So those that were kept waiting do not leave all together: it is one, or a second's worth.
    """
    return max(SECONDS_LATE, 60 / per_minute)


def plan(job: "EmailJob", *, per_minute: int) -> float:
    """Give a mail the next free moment, and the mails that wait behind it those after that.

    Returns the seconds until its own moment: 0 is now, and then no other mail was given one.
    """
    with transaction.atomic(using=router.db_for_write(MailPace)):
        pace: Any = MailPace.hold(job.mailer)
        wait = max(pace.next_at - pace.now, timedelta())
        taken = 1 + (_plan_those_behind(job, wait, per_minute) if wait else 0)
        pace.next_at = pace.now + wait + timedelta(minutes=taken / per_minute)
        pace.save(update_fields=["next_at"])
    return float(wait.total_seconds())


def _plan_those_behind(job: "EmailJob", wait: timedelta, per_minute: int) -> int:
    """Give due mails of the mailer the moments after that of `job`; returns how many moments."""
    mails = type(job).objects.using(job._state.db)
    late = Now() - timedelta(seconds=seconds_late(per_minute))
    planless = Q(leaves_at=None) | Q(leaves_at__lt=late)
    due = mails.ready().filter(planless, mailer=job.mailer).annotate(now=Now())
    behind: list[Any] = list(due.only("pk")[:MOST_AT_ONCE])
    for number, mail in enumerate(behind, start=1):
        moment = mail.now + wait + timedelta(minutes=number / per_minute)
        mail.leaves_at = mail.run_at = moment
    with transaction.atomic(using=job._state.db):
        mails.put_off(behind, "leaves_at")
    return len(behind)
