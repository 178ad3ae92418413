"""Pages on which people come and go."""

from typing import Any
from urllib.parse import urlsplit

from django.contrib import messages
from django.contrib.auth import login, logout
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_post_parameters
from django.views.generic import View

from accounts.forms import FirstAdministratorForm, SignInForm
from accounts.setup import LinkIsOver, has_administrator, is_open, make_first_administrator

LONGEST_NEXT = 2000
BACKEND = "django.contrib.auth.backends.ModelBackend"


class SignIn(LoginView):
    form_class = SignInForm  # type: ignore[assignment]  # The stubs want a `username` field.
    template_name = "accounts/sign_in.html"
    redirect_authenticated_user = True

    def get_redirect_url(self, request: HttpRequest | None = None) -> str:
        """Where `next` leads within Forge; "" when it leads elsewhere or back to this page."""
        url: str = super().get_redirect_url(request)
        if len(url) > LONGEST_NEXT or urlsplit(url).path == self.request.path:
            return ""
        return url

    def get_context_data(self, **context: Any) -> dict[str, Any]:
        return super().get_context_data(is_new=not has_administrator(), **context)


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
        login(request, person, backend=BACKEND)
        return redirect("home")

    def over(self, request: HttpRequest) -> HttpResponse:
        """410 for a Forge that is set up; 404 for a link that is not, or no longer, the one."""
        over = has_administrator()
        context = {"has_administrator": over}
        return render(request, "accounts/welcome_over.html", context, status=410 if over else 404)
