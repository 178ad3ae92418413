"""What every project sees of the engine in Django's admin."""

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils import dateformat
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobs.engine.job_admin import JobAdmin
from jobs.engine.kinds import Pause
from jobs.engine.lifecycle import Job
from jobs.engine.schedules import Schedule
from jobs.engine.task_admin import TaskJobAdmin
from jobs.engine.task_job import TaskJob

__all__ = ["JobAdmin"]

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
    ModelForm = forms.ModelForm[Any]
else:
    ModelAdmin = admin.ModelAdmin
    ModelForm = forms.ModelForm

admin.site.register(TaskJob, TaskJobAdmin)


def kind_choices() -> list[tuple[str, str]]:
    return [(kind.kind, kind.kind) for kind in Job.kinds()]


class KindForm(ModelForm):
    """A form whose kind is one of those that are installed."""

    kind = forms.ChoiceField(label=capfirst(gettext_lazy("kind")), choices=kind_choices)


@admin.register(Pause)
class PauseAdmin(ModelAdmin):
    """Adding a row pauses a kind on all workers; deleting it resumes."""

    form = KindForm
    fields = ("kind", "message")
    list_display = ("kind", "reason", "message", "created_at")

    def has_change_permission(self, request: HttpRequest, obj: Pause | None = None) -> bool:
        return False


@admin.register(Schedule)
class ScheduleAdmin(ModelAdmin):
    form = KindForm
    list_display = ("name", "cron", "time_zone", "kind", "enabled", "next_at", "last_at")
    list_filter = ("enabled", "kind")
    search_fields = ("name",)
    readonly_fields = ("next_five_runs", "last_at")

    @admin.display(description=gettext_lazy("next five runs"))
    def next_five_runs(self, schedule: Schedule) -> SafeString | str:
        if not schedule.pk:
            return _("Known when it is saved.")
        rows = ((dateformat.format(moment, "D Y-m-d H:i T"),) for moment in schedule.next_five())
        return format_html_join(SafeString("<br>"), "{}", rows) or _("It does not run.")
