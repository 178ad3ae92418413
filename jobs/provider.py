"""What happens when the provider accepts our credentials or account for no mail: none is burnt.

The kind `email` pauses itself, on all workers, with a reason of its own beside the operator's. A
task asks the provider each minute and lifts this pause alone.
"""

import logging
from datetime import timedelta

from django.db import transaction
from django.db.models.functions import Now

from jobs import delivery
from jobs.engine.kinds import Pause, pause, resume
from jobs.engine.retry import Snooze
from jobs.engine.row import Status
from jobs.engine.task_job import TaskJob

logger = logging.getLogger(__name__)

KIND = "email"
REASON = "provider"
PROBE = f"{__name__}.probe"
SECONDS_BETWEEN_PROBES = 60.0
# It is never tried out: only a dead worker spends one.
PROBES = 10_000


def stop_mail(why: str, *, probe_in: float = SECONDS_BETWEEN_PROBES, using: str) -> None:
    """Pause the kind and have the provider asked in so many seconds; the first call is loud."""
    with transaction.atomic(using=using):
        made = pause(KIND, reason=REASON, message=why, using=using)
        if made:
            # Each pause has a probe of its own: one that runs now may just have lifted another.
            _plan(using, probe_in)
    if made:
        logger.error("Mail stops, and none is lost: %s", why)


def _plan(using: str, seconds: float = SECONDS_BETWEEN_PROBES) -> None:
    TaskJob.objects.using(using).enqueue(
        task=PROBE,
        max_attempts=PROBES,
        run_at=Now() + timedelta(seconds=seconds),
    )


def watch() -> str:
    """Plan a probe where mail is paused and none is left, as when a person cancelled it.

    To be called by a schedule.
    """
    using = TaskJob.objects.db
    if not _is_stopped(using):
        return "Mail is not paused."
    probes = TaskJob.objects.using(using).filter(task=PROBE)
    if probes.filter(status__in=[Status.PENDING, Status.RUNNING]).exists():
        return "A task asks the provider."
    _plan(using)
    return "A new task asks the provider."


def _is_stopped(using: str) -> bool:
    return Pause.objects.using(using).filter(kind=KIND, reason=REASON).exists()


def probe() -> str:
    """Lift the pause if the provider would take mails; else run again in a minute."""
    using = TaskJob.objects.db
    if not _is_stopped(using):
        return "Mail is not paused."
    try:
        delivery.provider().probe()
    except Exception as error:
        logger.info("mail is still paused: %s", error)
        raise Snooze(SECONDS_BETWEEN_PROBES) from error
    resume(KIND, reason=REASON, using=using)
    logger.warning("Mail goes on: its provider accepts us again.")
    return "Mail goes on."
