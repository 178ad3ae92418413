"""Forge's kinds in the admin."""

from typing import Any, ClassVar

from django.contrib import admin
from django.utils.translation import gettext_lazy

from jobs.engine.admin import JobAdmin
from jobs.models import ImportJob


@admin.register(ImportJob)
class ImportJobAdmin(JobAdmin):
    list_display = (
        *("status", "name", "progress_pct", "attempts", "created_at"),
        *("short_error", "source_url"),
    )
    list_display_links = ("status", "name")
    list_filter: ClassVar[Any] = ("status", "visibility", "local", "created_at")
    list_select_related = ("user",)
    subject = (
        ("user", "slug", "visibility"),
        ("source_url", "local"),
        "repository",
        ("received_bytes", "bytes_per_second"),
    )
    search_fields = ("source_url", "slug", "user__handle", "user__email", "error_message")

    @admin.display(description=gettext_lazy("name"), ordering="slug")
    def name(self, job: ImportJob) -> str:
        return f"{job.user.handle}/{job.slug}"
