"""Pages on which people come and go."""

from typing import Any

from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_post_parameters
from django.views.generic import View

from accounts.forms import FirstAdministratorForm
from accounts.setup import LinkIsOver, has_administrator, is_open, make_first_administrator
from accounts.sign_in_views import begin
from accounts.tokens import hide_token


@login_not_required
def sign_out(request: HttpRequest) -> HttpResponse:
    """POST signs out; GET only asks, because a link or an image must not sign anybody out."""
    if request.method == "POST":
        logout(request)
        messages.info(request, _("You are signed out."))
    if not request.user.is_authenticated:
        return redirect("sign_in")
    return render(request, "accounts/sign_out.html")


@method_decorator(
    [
        login_not_required,
        # The token in the address is the proof: who could forge this request could as well send
        # it. And `no-referrer` makes browsers send `Origin: null`, which the check refuses.
        csrf_exempt,
        never_cache,
        sensitive_post_parameters("password1", "password2"),
    ],
    name="dispatch",
)
class Welcome(View):
    """The page behind the one-time link that makes the first administrator."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        hide_token(request, kwargs["token"])
        response = super().dispatch(request, *args, **kwargs)
        response["Referrer-Policy"] = "no-referrer"
        return response

    def get(self, request: HttpRequest, token: str) -> HttpResponse:
        if not is_open(token):
            return self.over(request)
        return render(request, "accounts/welcome.html", {"form": FirstAdministratorForm()})

    def post(self, request: HttpRequest, token: str) -> HttpResponse:
        if not is_open(token):
            return self.over(request)
        form = FirstAdministratorForm(request.POST)
        if not form.is_valid():
            return render(request, "accounts/welcome.html", {"form": form})
        try:
            person = make_first_administrator(token, person=form.save(commit=False))
        except LinkIsOver:
            return self.over(request)
        return begin(request, person, leads_to="")

    def over(self, request: HttpRequest) -> HttpResponse:
        """410 for a Forge that is set up; 404 for a link that is not, or no longer, the one."""
        over = has_administrator()
        context = {"has_administrator": over}
        return render(request, "accounts/welcome_over.html", context, status=410 if over else 404)
