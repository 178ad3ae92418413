"""A repository to be imported from a clone URL."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import IntegrityError, models, transaction
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobs.engine.concurrency import keys
from jobs.engine.execution import Run
from jobs.engine.lifecycle import Job, Refused
from jobs.engine.retry import Failed, Permanent
from jobs.engine.row import Status
from jobs.notifications import IMPORT_COMPLETED, IMPORT_FAILED, Notification
from repositories import importing, storage
from repositories.importing import Imported, ImportFailed
from repositories.models import Repository, Visibility
from repositories.plain_text import one_line
from repositories.slugs import MAX_SLUG

RUNNING_PER_USER = 2
RUNNING_PER_HOST = 2
LONGEST_SOURCE = 2048


def name_taken() -> str:
    return _("You have a repository of this name already.")


class ImportJob(Job):
    kind = "import"
    defaults = {"max_running_seconds": 3600}
    progress_fields = {"received_bytes": None, "bytes_per_second": None}

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="import_jobs",
        verbose_name=gettext_lazy("person"),
    )
    repository = models.ForeignKey(
        Repository,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="import_jobs",
        verbose_name=gettext_lazy("repository"),
    )
    source_url = models.CharField(gettext_lazy("source"), max_length=LONGEST_SOURCE)
    slug = models.CharField(gettext_lazy("name"), max_length=MAX_SLUG)
    visibility = models.CharField(
        gettext_lazy("visibility"),
        max_length=7,
        choices=Visibility,
        default=Visibility.PRIVATE,
    )
    local = models.BooleanField(
        gettext_lazy("from this machine"),
        default=False,
        editable=False,
        help_text=gettext_lazy("The source is a path; only commands can ask for that."),
    )
    received_bytes = models.BigIntegerField(gettext_lazy("bytes received"), null=True, blank=True)
    bytes_per_second = models.BigIntegerField(
        gettext_lazy("bytes per second"), null=True, blank=True
    )
    quiet = models.BooleanField(
        gettext_lazy("without a mail"),
        default=False,
        editable=False,
        help_text=gettext_lazy("Whoever asked for it waits in front of a terminal."),
    )
    told = models.CharField(
        gettext_lazy("mailed last"), max_length=40, blank=True, default="", editable=False
    )

    place: int | None = None
    """The place among the jobs that wait, 1 is next; set by those who read rows for a page."""
    paused: bool = False
    """Nobody claims imports at the moment; set by the same."""

    class Meta(Job.Meta):
        verbose_name = gettext_lazy("import")
        verbose_name_plural = gettext_lazy("imports")
        indexes = [
            *Job.Meta.indexes,
            models.Index(fields=["user", "-id"], name="jobs_importjob_mine"),
        ]

    # The work.

    def perform(self, run: Run) -> Imported:
        """Fetch the repository into a directory aside; nobody sees it before `on_completed`."""
        staging = importing.staging(self.pk, self.claim or "")
        importing.clear_leftovers(self.pk, keep=staging)
        try:
            return importing.import_repository(
                self.source_url,
                local=self.local,
                into=staging,
                start=run.subprocess,
                report=run.report,
            )
        except ImportFailed as error:
            if run.stopped is None:
                for line in error.detail.splitlines():
                    run.log(line)
            raise (Permanent if error.permanent else Failed)(error.reason) from error

    def on_completed(self, result: Imported) -> Mapping[str, Any]:
        """Make the repository's row, then move its files into place: the commit is all that follows."""
        repository = Repository(
            id=self.pk,
            owner_id=self.user_id,
            slug=self.slug,
            visibility=self.visibility,
            default_branch=result.default_branch,
            head_oid=result.head_oid,
            branch_count=result.branch_count,
            tag_count=result.tag_count,
            size_bytes=result.size_bytes,
            source_url="" if self.local else self.source_url,
            notice=result.notice,
            imported_at=timezone.now(),
        )
        try:
            with transaction.atomic():
                repository.save(force_insert=True)
        except IntegrityError as error:
            raise Permanent(name_taken()) from error
        self._mail(IMPORT_COMPLETED, repository=repository)
        importing.publish(result.path, repository.pk)
        return {"repository": repository}

    def on_failed(self, entry: Mapping[str, Any]) -> None:
        self._mail(IMPORT_FAILED)

    def _mail(self, notification: Notification, **words: Any) -> None:
        """Mail the person of this end, once; called where it is written, but not committed yet."""
        row = self._rows().filter(pk=self.pk, quiet=False)
        # Read anew: the time of the end is the database's.
        job = row.select_related("user").first()
        if job is not None:
            notification.tell(row, to=job.user, words={"job": job, **words})

    def discard(self, result: Imported) -> None:
        """Remove the files, also from their final place if the commit is what failed."""
        importing.discard(result.path)
        # While the claim is ours, no other attempt can have put its files there.
        self._withdraw_if(claim=self.claim)

    def on_lost(self) -> None:
        """Remove what the lost attempt built aside, and what it moved but could not commit."""
        importing.discard(importing.staging(self.pk, self.claim or ""))
        self._withdraw_if(status__in=[Status.PENDING, Status.FAILED, Status.CANCELLED])

    def _withdraw_if(self, **state: Any) -> None:
        """Take the files out of their final place if the row is in this state, and hold it there."""
        with transaction.atomic():
            if ImportJob.objects.select_for_update().filter(pk=self.pk, **state).exists():
                storage.withdraw(self.pk)

    def check_requeue(self) -> None:
        # A completed import holds its name itself; that it is completed is said elsewhere.
        named = Repository.objects.filter(owner=self.user_id, slug__iexact=self.slug)
        if self.status != Status.COMPLETED and named.exists():
            raise Refused(name_taken())

    def requeue(self) -> None:
        with transaction.atomic(using=self._state.db):
            super().requeue()
            # Whoever runs it again does so on a page, and need not wait there.
            self._rows().filter(pk=self.pk).update(quiet=False)

    # For pages and mails.

    @property
    def reason(self) -> str:
        """Why the last attempt failed, in the active language where it is one of Forge's sentences."""
        last = self.attempt_log[-1] if self.attempt_log else {}
        if self.error_message and last.get("outcome") == "timed out":
            seconds = f"{self.max_running_seconds:g}"
            return _("Took longer than the limit of %(seconds)s seconds.") % {"seconds": seconds}
        return _(self.error_message) if self.error_message else ""

    @property
    def source_told(self) -> str:
        """The source in one line, whatever a path of this machine holds."""
        return one_line(self.source_url, limit=LONGEST_SOURCE)

    @property
    def owner(self) -> Any:
        """The person in whose name the repository is to stand."""
        return self.user

    def get_absolute_url(self) -> str:
        return reverse("import_progress", args=[self.pk])

    @property
    def notice(self) -> str:
        """What a person should know of the result, in sentences."""
        return " ".join(str(line) for line in self.repository.notices) if self.repository else ""

    @property
    def waits_until(self) -> datetime | None:
        return self.run_at if self.status == Status.PENDING and not self.due else None

    @property
    def elapsed(self) -> str:
        """h:mm:ss of this attempt; empty before it began."""
        if self.started_at is None:
            return ""
        seconds = max(
            0, int(((self.completed_at or timezone.now()) - self.started_at).total_seconds())
        )
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"

    @property
    def attempt_note(self) -> str:
        """Which attempt this is and why there was one before; empty for the first."""
        number = self.attempts + (self.status == Status.PENDING)
        before = self.spent_attempts
        if self.is_over or not before:
            return ""
        last = before[-1]
        if last["outcome"] == "worker lost":
            return _("Attempt %(number)d: the worker was lost.") % {"number": number}
        if self.status == Status.RUNNING:
            return _("Attempt %(number)d. The one before: %(message)s") % {
                "number": number,
                "message": _(last["message"]),
            }
        return _("Attempt %(number)d of %(most)d is next.") % {
            "number": number,
            "most": self.max_attempts,
        }


def keys_of(*, owner_id: object, slug: str, source_url: str, local: bool = False) -> dict[str, str]:
    """The columns that keep imports apart: one to a name, few at once to a person and to a host."""
    limits = {f"user:{owner_id}": RUNNING_PER_USER}
    host = None if local else urlsplit(source_url).hostname
    if host:
        limits[f"host:{host}"] = RUNNING_PER_HOST
    return {"unique_key": f"{owner_id}/{slug.lower()}", "concurrency_key": keys(limits)}
