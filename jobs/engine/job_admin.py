"""The admin of a kind of job, to be inherited: see everything, change nothing by hand."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.utils import flatten_fieldsets
from django.core.exceptions import BadRequest, ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator, capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from jobs.engine.lifecycle import Job, Refused

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin


ATTEMPT_FIELDS = (
    *("number", "outcome", "message", "worker", "started_at", "ended_at"),
    *("error_class", "traceback"),
)
ATTEMPT = (
    "<details><summary>{number}: <strong>{outcome}</strong>{times} {message}</summary>"
    "<p>{started_at} … {ended_at}<br>{worker}<br>{error_class}</p><pre>{traceback}</pre></details>"
)
TIMES = ("created_at", "started_at", "completed_at")
LIMITS = ("attempts", "max_attempts", "max_running_seconds", "run_at")
OWNERSHIP = ("worker", "claim", "lease_until")
SHARED_FIELDSETS: Any = (
    (gettext_lazy("Progress"), {"fields": ("progress_told", TIMES)}),
    (gettext_lazy("Attempts"), {"fields": (LIMITS, "attempts_told")}),
    (
        gettext_lazy("Claim"),
        {"fields": (OWNERSHIP, ("cancel_requested_at", "priority"), "id")},
    ),
)


class JobAdmin(ModelAdmin):
    """The admin of every kind: see everything, change nothing but by Retry and Cancel."""

    date_hierarchy = "created_at"
    list_filter: ClassVar[Any] = ("status", "created_at")
    ordering = ("-id",)
    show_full_result_count = False
    actions = ("retry", "cancel")
    subject: ClassVar[tuple[str | tuple[str, ...], ...]] = ()
    """The kind's own columns, shown first."""

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        return [(None, {"fields": ("status", "error_message", *self.subject)}), *SHARED_FIELDSETS]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        # Among them those that Django leaves out because no form may set them.
        return flatten_fieldsets(self.get_fieldsets(request))

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Only what the page offers: a list that may be filtered by any column tells every column."""
        offered = [self.date_hierarchy, "id", *self.list_filter]
        return lookup.partition("__")[0] in offered

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        try:
            # Django's "Select … to change" promises more than there is.
            title = capfirst(self.opts.verbose_name_plural)
            return super().changelist_view(request, {"title": title, **(extra_context or {})})
        except ValidationError as error:
            # Only a forged selection holds an id that is none.
            raise BadRequest("A selected job has no valid id.") from error

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Job | None = None) -> bool:
        # Without an object the question is about the actions; a row itself is never edited.
        return obj is None and super().has_change_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Job | None = None) -> bool:
        return False

    @admin.action(description=gettext_lazy("Retry"), permissions=["change"])
    def retry(self, request: HttpRequest, jobs: QuerySet[Any]) -> None:
        done, refusals = each(jobs, "requeue")
        self._tell(request, refusals)
        if done:
            text = ngettext("%d job runs again.", "%d jobs run again.", done) % done
            self.message_user(request, text, messages.SUCCESS)

    @admin.action(description=gettext_lazy("Cancel"), permissions=["change"])
    def cancel(self, request: HttpRequest, jobs: QuerySet[Any]) -> None:
        done, refusals = each(jobs, "cancel")
        self._tell(request, refusals)
        if done:
            # A running job ends a moment later, so nothing is said of how far that is.
            text = ngettext("%d job is being cancelled.", "%d jobs are being cancelled.", done)
            self.message_user(request, text % done, messages.SUCCESS)

    def _tell(self, request: HttpRequest, refusals: Iterable[str]) -> None:
        for refusal in refusals:
            self.message_user(request, refusal, messages.WARNING)

    @admin.display(description=gettext_lazy("error"))
    def short_error(self, job: Job) -> str:
        return Truncator(job.error_message).chars(80)

    @admin.display(description=gettext_lazy("progress"))
    def progress_told(self, job: Job) -> str:
        told = [f"{job.progress_pct} %", job.progress_step]
        if job.progress_total is not None:
            told.append(f"{job.progress_done or 0} / {job.progress_total}")
        return ", ".join(filter(None, told))

    @admin.display(description=gettext_lazy("attempts that did not complete"))
    def attempts_told(self, job: Job) -> SafeString:
        told = [
            {
                **{name: entry.get(name) or "" for name in ATTEMPT_FIELDS},
                "times": _(", %d times:") % entry["times"] if "times" in entry else "",
            }
            for entry in job.attempt_log
        ]
        return format_html_join("", ATTEMPT, told) or SafeString("-")


def each(jobs: QuerySet[Any], verb: str) -> tuple[int, list[str]]:
    """Apply a person's verb to each job: (how many it moved, why it was refused for others)."""
    done, refusals = 0, []
    for job in jobs:
        try:
            getattr(job, verb)()
            done += 1
        except Refused as refusal:
            refusals.append(_("%(job)s: %(why)s") % {"job": job, "why": refusal})
    return done, refusals
