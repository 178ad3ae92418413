"""Jobs in the admin: see everything, change nothing but by Retry and Cancel."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from jobs.engine.lifecycle import Job, Refused
from jobs.models import ImportJob

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin


class JobAdmin(ModelAdmin):
    """What the admin of every kind has."""

    date_hierarchy = "created_at"
    list_filter: ClassVar[Any] = ("status", "created_at")
    ordering = ("-id",)
    show_full_result_count = False
    actions = ("retry", "cancel")

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
            text = ngettext("%d job is cancelled.", "%d jobs are cancelled.", done) % done
            self.message_user(request, text, messages.SUCCESS)

    def _tell(self, request: HttpRequest, refusals: Iterable[str]) -> None:
        for refusal in refusals:
            self.message_user(request, refusal, messages.WARNING)

    @admin.display(description=gettext_lazy("attempts that did not complete"))
    def attempts_told(self, job: Job) -> SafeString:
        text = json.dumps(job.attempt_log, indent=2, ensure_ascii=False).replace("\\n", "\n")
        return format_html("<pre>{}</pre>", text) if job.attempt_log else SafeString("-")


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


@admin.register(ImportJob)
class ImportJobAdmin(JobAdmin):
    list_display = (
        "status",
        "name",
        "source_url",
        "progress_pct",
        "attempts",
        "created_at",
        "completed_at",
    )
    list_display_links = ("status", "name")
    list_filter: ClassVar[Any] = ("status", "visibility", "local", "created_at")
    list_select_related = ("user",)
    search_fields = ("source_url", "slug", "user__handle", "user__email", "error_message")
    exclude = ("attempt_log",)
    readonly_fields = ("attempts_told",)

    @admin.display(description=gettext_lazy("name"), ordering="slug")
    def name(self, job: ImportJob) -> str:
        return f"{job.user.handle}/{job.slug}"
