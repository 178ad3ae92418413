"""Tasks in the admin: their arguments and results, and a copy of one with other arguments."""

import inspect
import json
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.forms.fields import InvalidJSONInput
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobs.engine.arguments import check_json
from jobs.engine.calls import find
from jobs.engine.conf import config
from jobs.engine.job_admin import JobAdmin
from jobs.engine.retry import Permanent
from jobs.engine.task_job import TaskJob
from jobs.engine.text import words_of

FOLDED_FROM = 300
"""Characters of JSON from which on they are folded away."""


class PrettyEncoder(json.JSONEncoder):
    """JSON as a person edits it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "indent": 2, "ensure_ascii": False})


class TypedJSONField(forms.JSONField):
    """JSON of which every fault is told in the form, where the text stays as it was typed."""

    def to_python(self, value: Any) -> Any:
        try:
            return super().to_python(value)
        except (ValueError, RecursionError) as error:
            # A number of more digits than Python reads, brackets deeper than it follows.
            raise ValidationError(
                _("This cannot be read: %(why)s."), params={"why": error}
            ) from error

    def bound_data(self, data: Any, initial: Any) -> Any:
        return data if data is None else InvalidJSONInput(data)


class CopyForm(forms.Form):
    """The arguments of a new job for the task of `job`."""

    args = TypedJSONField(
        label=gettext_lazy("Arguments by position"),
        help_text=gettext_lazy('A JSON list, as in [2026, "euro"].'),
        encoder=PrettyEncoder,
        required=False,
    )
    kwargs = TypedJSONField(
        label=gettext_lazy("Arguments by name"),
        help_text=gettext_lazy('A JSON object, as in {"year": 2026}.'),
        encoder=PrettyEncoder,
        required=False,
    )

    def __init__(self, data: Any = None, *, job: TaskJob) -> None:
        super().__init__(data, initial={"args": job.args, "kwargs": job.kwargs})
        self._job = job

    def clean_args(self) -> Any:
        args = self.cleaned_data["args"]
        return self._checked("args", [] if args is None else args, list)

    def clean_kwargs(self) -> Any:
        kwargs = self.cleaned_data["kwargs"]
        return self._checked("kwargs", {} if kwargs is None else kwargs, dict)

    def _checked(self, name: str, value: Any, wanted: type) -> Any:
        if not isinstance(value, wanted):
            raise ValidationError(self.fields[name].help_text)
        try:
            check_json(value, name=name, max_bytes=config().max_payload_bytes)
        except (TypeError, ValueError) as error:
            raise ValidationError(str(error)) from error
        return value

    def clean(self) -> dict[str, Any] | None:
        """Raise ValidationError where the task does not take these arguments."""
        given = super().clean()
        if self.errors:
            return given
        try:
            callee = find(self._job.task)
        except Permanent as error:
            raise ValidationError(str(error)) from error
        except Exception as error:
            # Whatever the task's own module raises when it is imported.
            raise ValidationError(
                _("%(task)s cannot be imported: %(why)s"),
                params={
                    "task": self._job.task,
                    "why": f"{type(error).__name__}: {words_of(error)}",
                },
            ) from error
        context = [None] if callee.takes_context else []
        try:
            signature = inspect.signature(callee.function)
        except ValueError:
            # Of functions written in C nothing is known.
            return given
        try:
            signature.bind(*context, *self.cleaned_data["args"], **self.cleaned_data["kwargs"])
        except TypeError as error:
            raise ValidationError(
                _("The task does not take these arguments: %(why)s."), params={"why": error}
            ) from error
        return given

    def enqueue(self) -> TaskJob | None:
        """Enqueue the copy; None, and why in `errors`, where that cannot be.

        An equal job that waits or runs is returned in its place.
        """
        job = self._job
        try:
            return TaskJob.objects.enqueue(
                task=job.task,
                payload={"args": self.cleaned_data["args"], "kwargs": self.cleaned_data["kwargs"]},
                queue_name=job.queue_name,
                backend=job.backend,
                priority=job.priority,
            )
        except (TypeError, ValueError) as error:
            self.add_error(None, str(error))
            return None


class TaskJobAdmin(JobAdmin):
    change_form_template = "admin/jobs_engine/taskjob/change_form.html"
    list_display = (
        *("status", "task", "queue_name", "progress_pct", "attempts", "created_at"),
        *("completed_at", "short_error"),
    )
    list_display_links = ("status", "task")
    list_filter: ClassVar[Any] = ("status", "queue_name", "created_at")
    search_fields = ("task", "error_message")
    subject = (("task", "queue_name", "backend"), "arguments_told", "result_told")

    def get_urls(self) -> list[URLPattern]:
        copy = self.admin_site.admin_view(self.copy_view)
        return [path("<uuid:pk>/copy/", copy, name="jobs_engine_taskjob_copy"), *super().get_urls()]

    def may_copy(self, request: HttpRequest) -> bool:
        """Whoever may add tasks may run a copy; nothing else adds one here."""
        return bool(request.user.has_perm("jobs_engine.add_taskjob"))

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        shown = {"may_copy": self.may_copy(request), **(extra_context or {})}
        return super().changeform_view(request, object_id, form_url, shown)

    def copy_view(self, request: HttpRequest, pk: Any) -> HttpResponse:
        """A form with the arguments of a job; sent, it makes a new job of them."""
        if not (self.may_copy(request) and self.has_view_permission(request)):
            raise PermissionDenied
        job = get_object_or_404(self.get_queryset(request), pk=pk)
        form = CopyForm(request.POST if request.method == "POST" else None, job=job)
        if form.is_valid() and (made := form.enqueue()):
            self.message_user(request, *said_of(made))
            return redirect("admin:jobs_engine_taskjob_change", made.pk)
        context = {
            **self.admin_site.each_context(request),
            "form": form,
            "job": job,
            "opts": self.opts,
            "media": self.media + form.media,
            "title": _("Run a copy"),
            "subtitle": job.task,
            "job_url": reverse("admin:jobs_engine_taskjob_change", args=[job.pk]),
        }
        return TemplateResponse(request, "admin/jobs_engine/taskjob/copy.html", context)

    @admin.display(description=gettext_lazy("arguments"))
    def arguments_told(self, job: TaskJob) -> SafeString | str:
        return json_told({"args": job.args, "kwargs": job.kwargs})

    @admin.display(description=gettext_lazy("result"))
    def result_told(self, job: TaskJob) -> SafeString | str:
        return "-" if job.result is None else json_told(job.result)


def said_of(made: TaskJob) -> tuple[str, int]:
    """The message about a copy, and its level."""
    if made.duplicate:
        return _("An equal job is waiting or running already: this one."), messages.WARNING
    return _("The copy is enqueued: this is its page."), messages.SUCCESS


def json_told(value: Any) -> SafeString:
    """JSON for reading, folded when it is long."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    if len(text) <= FOLDED_FROM:
        return format_html("<pre>{}</pre>", text)
    head = json.dumps(value, ensure_ascii=False)[:80]
    return format_html("<details><summary>{}…</summary><pre>{}</pre></details>", head, text)
