"""What happens when the provider of mail does not accept our credentials: nothing is burnt.

The kind `email` pauses itself, on all workers, with a reason of its own beside the operator's. A
task asks the provider each minute and lifts this pause alone.
"""

import logging
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from jobs import delivery
from jobs.engine.kinds import Pause, pause, resume
from jobs.engine.retry import Snooze
from jobs.engine.task_job import TaskJob

logger = logging.getLogger(__name__)

KIND = "email"
REASON = "provider"
SECONDS_BETWEEN_PROBES = 60
# It is never tried out: only a dead worker spends one.
PROBES = 10_000


def stop_mail(why: str, *, using: str) -> None:
    """Pause the kind and see to it that the provider is asked; the first call says so loudly."""
    with transaction.atomic(using=using):
        made = pause(KIND, reason=REASON, message=why, using=using)
        if made:
            # Each pause has a probe of its own: one that runs now may just have lifted another.
            TaskJob.objects.using(using).enqueue(
                task=f"{__name__}.{probe.__name__}",
                max_attempts=PROBES,
                run_at=timezone.now() + timedelta(seconds=SECONDS_BETWEEN_PROBES),
            )
    if made:
        logger.error("Mail stops, and none is lost: %s", why)


def probe() -> str:
    """Lift the pause if the provider would take mails; else run again in a minute."""
    using = TaskJob.objects.db
    if not Pause.objects.using(using).filter(kind=KIND, reason=REASON).exists():
        return "Mail is not paused."
    try:
        delivery.provider().probe()
    except Exception as error:
        logger.info("mail is still paused: %s", error)
        raise Snooze(SECONDS_BETWEEN_PROBES) from error
    resume(KIND, reason=REASON, using=using)
    logger.warning("Mail goes on: its provider accepts us again.")
    return "Mail goes on."
