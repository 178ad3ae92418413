"""Forge's kinds in the admin."""

from typing import Any, ClassVar

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.core.mail import EmailMessage
from django.db import DatabaseError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.defaultfilters import filesizeformat
from django.urls import URLPattern, path
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from jobs.engine.admin import JobAdmin
from jobs.models import EmailJob, ImportJob

# How the names of the admin's addresses of people begin.
PEOPLE = settings.AUTH_USER_MODEL.lower().replace(".", "_") + "_"


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
        ("quiet", "told"),
    )
    search_fields = ("source_url", "slug", "user__handle", "user__email", "error_message")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Only together with its person, on whose page it is listed before."""
        match = request.resolver_match
        if obj is None or match is None or not str(match.url_name).startswith(PEOPLE):
            return False
        return request.user.has_perm("jobs.delete_importjob")

    @admin.display(description=gettext_lazy("name"), ordering="slug")
    def name(self, job: ImportJob) -> str:
        return f"{job.user.handle}/{job.slug}"


class MailList(ChangeList):
    """Mails without what no list shows: a page of them could be a gigabyte."""

    UNREAD = ("text", "html", "headers", "attachments", "attempt_log")

    def get_queryset(self, *args: Any, **kwargs: Any) -> QuerySet[EmailJob]:
        return super().get_queryset(*args, **kwargs).defer(*self.UNREAD)


@admin.register(EmailJob)
class EmailJobAdmin(JobAdmin):
    """Mails: who was written to about what, and what the provider said of it.

    The text is shown to those with the permission `view_email_body`; that of a secret mail to
    nobody, because it is as good as a password.
    """

    change_list_template = "admin/jobs/emailjob/change_list.html"
    list_display = ("status", "recipient", "subject", "attempts", "answer", "created_at")
    list_display_links = ("status", "recipient")
    search_fields = ("to", "cc", "bcc", "subject", "error_message", "message_id")
    subject = (
        *("to_told", "cc_told", "bcc_told", "reply_to_told"),
        *("from_email", "subject", "attached_told", "tags_told"),
        ("message_id", "mailer"),
        ("provider_message_id", "provider_answer"),
        "accepted_told",
        "refused_told",
        ("not_after", "leaves_at"),
        ("handed_over_at", "erased_at"),
    )

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        first, *rest = super().get_fieldsets(request, obj)
        if not request.user.has_perm("jobs.view_email_body"):
            return [first, *rest]
        return [first, (gettext_lazy("Text"), {"fields": ("body_told",)}), *rest]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        shown = {"may_send_test": self.has_change_permission(request), **(extra_context or {})}
        return super().changelist_view(request, shown)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return MailList

    def get_urls(self) -> list[URLPattern]:
        test = self.admin_site.admin_view(require_POST(self.send_test))
        return [path("test/", test, name="jobs_emailjob_test"), *super().get_urls()]

    def send_test(self, request: HttpRequest) -> HttpResponse:
        """Queue a mail to the person who pressed the button."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        to = getattr(request.user, "email", "")
        text = _("If you can read this, Forge can send mail.")
        try:
            EmailMessage(_("A test mail from Forge"), text, to=[to]).send(using="default")
        except (ValueError, DatabaseError, OSError) as error:
            self.message_user(request, str(error), messages.ERROR)
        else:
            told = _("A test mail to %(to)s is queued: here you see what becomes of it.")
            self.message_user(request, told % {"to": to}, messages.SUCCESS)
        return redirect("admin:jobs_emailjob_changelist")

    @admin.display(description=gettext_lazy("recipient"))
    def recipient(self, job: EmailJob) -> str:
        first, more = job.recipients[:1], len(job.recipients) - 1
        return f"{''.join(first)} +{more}" if more > 0 else "".join(first)

    @admin.display(description=gettext_lazy("the provider's answer"))
    def answer(self, job: EmailJob) -> str:
        return Truncator(job.provider_answer or job.error_message).chars(80)

    @admin.display(description=gettext_lazy("to"))
    def to_told(self, job: EmailJob) -> str:
        return ", ".join(job.to) or "-"

    @admin.display(description=gettext_lazy("copy to"))
    def cc_told(self, job: EmailJob) -> str:
        return ", ".join(job.cc) or "-"

    @admin.display(description=gettext_lazy("blind copy to"))
    def bcc_told(self, job: EmailJob) -> str:
        return ", ".join(job.bcc) or "-"

    @admin.display(description=gettext_lazy("reply to"))
    def reply_to_told(self, job: EmailJob) -> str:
        return ", ".join(job.reply_to) or "-"

    @admin.display(description=gettext_lazy("tags"))
    def tags_told(self, job: EmailJob) -> str:
        return ", ".join(job.tags) or "-"

    @admin.display(description=gettext_lazy("attachments"))
    def attached_told(self, job: EmailJob) -> str:
        told = (
            f"{one['name'] or one['mimetype']} ({filesizeformat(one['size'])})"
            for one in job.attachments
        )
        return ", ".join(told) or "-"

    @admin.display(description=gettext_lazy("accepted recipients"))
    def accepted_told(self, job: EmailJob) -> str:
        return ", ".join(job.accepted) or "-"

    @admin.display(description=gettext_lazy("refused recipients"))
    def refused_told(self, job: EmailJob) -> SafeString | str:
        return format_html_join(SafeString("<br>"), "{}: {}", job.refused.items()) or "-"

    @admin.display(description=gettext_lazy("text"))
    def body_told(self, job: EmailJob) -> SafeString | str:
        if job.is_secret:
            return _("This mail holds a secret, so its text is never shown.")
        if job.erased_at is not None:
            return _("The text was erased when the mail was delivered.")
        told = (("text/plain", job.text), ("text/html", job.html))
        return format_html_join("", "<h3>{}</h3><pre>{}</pre>", [one for one in told if one[1]])
