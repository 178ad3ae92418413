"""The outbox: what a machine under development would have mailed. There only with DEBUG on.

It is open without signing in, because the link by which one signs in is in it; but only to a
browser on this machine.
"""

import uuid

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.csp import CSP
from django.views.decorators.csp import csp_override
from django.views.decorators.http import require_safe

from jobs import outbox
from jobs.outbox import KeptMail

LOOPBACK = {"127.0.0.1", "::1"}
# A mail's page may look as its sender wants, and do nothing.
MAIL_POLICY: dict[str, list[str]] = {
    "default-src": [CSP.NONE],
    "style-src": [CSP.UNSAFE_INLINE],
    "img-src": ["data:"],
    "base-uri": [CSP.NONE],
    "form-action": [CSP.NONE],
    "frame-ancestors": [CSP.NONE],
}


@require_safe
@login_not_required
def outbox_list(request: HttpRequest) -> HttpResponse:
    demand_this_machine(request)
    return render(request, "jobs/outbox.html", {"mails": outbox.kept(), "most": outbox.KEPT})


@require_safe
@login_not_required
def outbox_mail(request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
    return render(request, "jobs/outbox_mail.html", {"mail": _mail_or_404(request, pk)})


@csp_override(MAIL_POLICY)
@require_safe
@login_not_required
def outbox_html(request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
    """The HTML of the mail as it is."""
    return HttpResponse(_mail_or_404(request, pk).html)


def _mail_or_404(request: HttpRequest, pk: uuid.UUID) -> KeptMail:
    demand_this_machine(request)
    mail = outbox.kept_mail(pk)
    if mail is None:
        raise Http404
    return mail


def demand_this_machine(request: HttpRequest) -> None:
    """Raise Http404 unless DEBUG is on and the browser is on this machine, with no proxy between."""
    forwarded = {"HTTP_X_FORWARDED_FOR", "HTTP_FORWARDED", "HTTP_X_REAL_IP"} & set(request.META)
    here = request.META.get("REMOTE_ADDR") in LOOPBACK and not forwarded
    if not (settings.DEBUG and here):
        raise Http404
