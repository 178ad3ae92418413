"""What holds for a whole kind over all workers: who may claim with keys, and whether it is paused."""

from typing import Any, ClassVar

from django.db import models, transaction
from django.db.models.functions import Now
from django.db.models.signals import post_delete, post_save
from django.utils.translation import gettext_lazy as _

from jobs.engine.enqueueing import changed, wanted


class KindLock(models.Model):
    """One row for each kind; whoever claims jobs with concurrency keys holds it meanwhile."""

    kind = models.CharField(primary_key=True, max_length=40)

    class Meta:
        app_label = "jobs_engine"

    def __str__(self) -> str:
        return self.kind

    @staticmethod
    def hold(kind: str, *, using: str) -> None:
        """Wait for the lock and keep it until the transaction ends.

        SQLite has one writer at a time, so a transaction that writes holds it already.
        """
        rows = KindLock.objects.using(using)
        if not rows.select_for_update().filter(pk=kind).exists():
            rows.bulk_create([KindLock(kind=kind)], ignore_conflicts=True)
            rows.select_for_update().get(pk=kind)


class Pause(models.Model):
    """A kind of which nothing is claimed; several may have a reason to pause it."""

    OPERATOR: ClassVar[str] = "operator"

    kind = models.CharField(_("kind"), max_length=40)
    reason = models.CharField(_("reason"), max_length=40, default=OPERATOR)
    message = models.TextField(_("message"), blank=True, default="")
    created_at = models.DateTimeField(_("since"), db_default=Now(), editable=False)

    class Meta:
        app_label = "jobs_engine"
        verbose_name = _("pause")
        verbose_name_plural = _("pauses")
        constraints = [
            models.UniqueConstraint(fields=["kind", "reason"], name="jobs_engine_pause_once"),
        ]

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


def pause(kind: str, *, reason: str = Pause.OPERATOR, message: str = "", using: str) -> bool:
    """Claim nothing more of a kind, on all workers; False when it was paused for that reason."""
    _row, made = Pause.objects.using(using).get_or_create(
        kind=kind, reason=reason, defaults={"message": message}
    )
    return made


def resume(kind: str, *, reason: str = Pause.OPERATOR, using: str) -> bool:
    """Lift the pause for `reason`; False when there was none."""
    with transaction.atomic(using=using):
        deleted, _by_model = Pause.objects.using(using).filter(kind=kind, reason=reason).delete()
    return deleted > 0


def tell_of_pause(*, instance: Pause, using: str, **_kwargs: Any) -> None:
    """Workers wake at once when a pause is made or lifted, by whomever, and so do pages."""
    for signal in (wanted, changed):
        signal.send(Pause, kind=instance.kind, using=using)


post_save.connect(tell_of_pause, sender=Pause)
post_delete.connect(tell_of_pause, sender=Pause)
