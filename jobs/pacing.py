"""When the mails leave of a mailer that sends no more than so many a minute.

Each gets a moment of its own, and is due then, before all that is not urgent: the pace itself keeps
it from standing in the way of others.
"""

import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.db import router, transaction
from django.db.models.functions import Now

from jobs.engine.ageing import HIGHEST
from jobs.engine.row import Status
from jobs.models.mail_pace import MailPace

if TYPE_CHECKING:
    from jobs.models.email_job import EmailJob

SECONDS_LATE = 5.0
MOST_AT_ONCE = 500
"""So many mails are given their moments in one transaction, for which on SQLite others wait."""
SEEN_AT_ONCE = 1000
TRIES = 40
SECONDS_BETWEEN_TRIES = 0.02
SECONDS_TO_ASK_AGAIN = 1.0


def is_its_moment(moment: datetime | None, *, now: datetime, per_minute: int) -> bool:
    """Whether a mail may leave now that was given this moment.

    It may be late, but not for long, as after a pause: so those that were kept waiting do not leave
    all together. It is one mail, or five seconds' worth.
    """
    late = max(SECONDS_LATE, 60 / per_minute)
    return moment is not None and 0 <= (now - moment).total_seconds() <= late


def plan(job: "EmailJob", *, per_minute: int) -> float:
    """Give a mail that runs the next free moment, and mails that wait behind it those after that.

    Returns the seconds until its own moment: 0 is now, and then no other mail was given one. If
    somebody else plans for long it is SECONDS_TO_ASK_AGAIN. Raises LostClaim; then none was given.
    """
    for _ in range(TRIES):
        wait = _plan(job, per_minute)
        if wait is not None:
            return wait
        # Most plan for less than a tenth of a second. The lock itself one might wait for for ever.
        time.sleep(SECONDS_BETWEEN_TRIES)
    return SECONDS_TO_ASK_AGAIN


def _plan(job: "EmailJob", per_minute: int) -> float | None:
    """Like `plan`; None when somebody else plans right now."""
    using = job._state.db or router.db_for_write(type(job))
    with transaction.atomic(using=using):
        pace = MailPace.hold(job.mailer, using=using)
        if pace is None:
            return None
        wait = _wait(pace, job, using=using, per_minute=per_minute)
        moment, taken = pace.now + wait, 1
        if wait:
            job.note(leaves_at=moment, rank=HIGHEST)
            taken += _plan_those_behind(job, moment, now=pace.now, per_minute=per_minute)
        pace.next_at = moment + timedelta(minutes=taken / per_minute)
        pace.save(using=using, update_fields=["next_at"])
    return float(wait.total_seconds())


def _wait(pace: Any, job: "EmailJob", *, using: str, per_minute: int) -> timedelta:
    """How long until the next free moment, on the database's clock."""
    wait: timedelta = max(pace.next_at - pace.now, timedelta())
    gap = timedelta(minutes=1 / per_minute)
    if wait <= gap:
        return wait
    mails = type(job).objects.using(using)
    # Those that were given a moment just now run until that is written.
    for planned in (mails.future().order_by(), mails.filter(status=Status.RUNNING)):
        if planned.filter(mailer=job.mailer, leaves_at__gt=Now()).exists():
            return wait
    # Those that had the moments until then were cancelled or deleted.
    return gap


def _plan_those_behind(job: "EmailJob", moment: datetime, *, now: datetime, per_minute: int) -> int:
    """Give due mails of the mailer the moments after this one; returns how many were given."""
    mails = type(job).objects.using(job._state.db)
    # Of what is due only the beginning is seen, however much that is.
    due = mails.ready().values_list("pk", "mailer", "leaves_at")[:SEEN_AT_ONCE]
    behind = [
        pk
        for pk, mailer, leaves_at in due
        if mailer == job.mailer and not is_its_moment(leaves_at, now=now, per_minute=per_minute)
    ]
    moments = {
        pk: moment + timedelta(minutes=number / per_minute)
        for number, pk in enumerate(behind[:MOST_AT_ONCE], start=1)
    }
    if moments:
        mails.put_off(moments, "leaves_at", rank=HIGHEST)
    return len(moments)
