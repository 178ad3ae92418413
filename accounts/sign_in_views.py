"""Pages that sign in: by mail first, by password too."""

from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from django.contrib.auth import login, logout
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import LoginView
from django.db import IntegrityError
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.generic import View

from accounts.addresses import plain
from accounts.asked import Asked
from accounts.forms import CodeForm, HandleForm, MailForm, SignInForm
from accounts.languages import speak_to
from accounts.limits import Limit, demand, give_back, take
from accounts.models import SignInToken, User
from accounts.setup import has_administrator
from accounts.sign_in_mail import ask
from accounts.signing_in import (
    Over,
    State,
    WrongCode,
    found,
    join_by,
    link_for,
    person_of,
    sign_in_by,
    try_code,
)
from accounts.tokens import hide_token
from accounts.visitors import network_of

BACKEND = "accounts.passwords.LimitedBackend"
LONGEST_NEXT = 2000

ASKED_FROM_NETWORK = Limit("sign-in mails asked from a network", 60, timedelta(hours=1))
# One a minute, for whoever presses twice; then few enough that nobody's mailbox is flooded, and
# so often that the last mail has not expired when the next one may go out.
MAILS_AT_ONCE = Limit("sign-in mails to an address at once", 1, timedelta(minutes=1))
MAILS = Limit("sign-in mails to an address", 5, timedelta(hours=1))
# Fewer than half of those to the address, so that one stranger cannot use up its owner's: a
# computer with IPv4 and IPv6 is two networks.
MAILS_FROM_NETWORK = Limit("sign-in mails to an address from a network", 2, timedelta(hours=1))
CODES_FROM_NETWORK = Limit("codes from a network", 30, timedelta(hours=1))


def within_forge(request: HttpRequest, url: str) -> str:
    """The address if it leads within Forge; "" if it leads elsewhere or round in circles."""
    hosts = {request.get_host()}
    # PostgreSQL stores no NUL, and no page has one in its address.
    if (
        "\x00" in url
        or len(url) > LONGEST_NEXT
        or not url_has_allowed_host_and_scheme(url, hosts, require_https=request.is_secure())
    ):
        return ""
    parts, here = urlsplit(url), reverse("sign_in")
    # What is relative would lead to another place from each page that it passes.
    if not (parts.netloc or url.startswith("/")):
        return ""
    return "" if f"{parts.path}/".startswith(f"{here}/") else url


def may_mail(address: str, *, network: str) -> bool:
    """Whether another mail may go to an address, asked for from this network; counts it if so."""
    if take(MAILS_AT_ONCE, address):
        return False
    if take(MAILS_FROM_NETWORK, f"{network} {address}"):
        give_back(MAILS_AT_ONCE, address)
        return False
    return not take(MAILS, address)


def begin(request: HttpRequest, person: User, *, leads_to: str) -> HttpResponse:
    """Sign the person in, in a new session that has nothing of the one before."""
    if request.user.is_authenticated:
        logout(request)
    login(request, person, backend=BACKEND)
    # Not redirect(), which takes some texts for the name of a page.
    response = HttpResponseRedirect(within_forge(request, leads_to) or reverse("home"))
    Asked.forget(response)
    return response


def over(request: HttpRequest, state: State) -> HttpResponse:
    """404 for a link that never was, 410 for one that was."""
    status = 404 if state is State.UNKNOWN else 410
    return render(request, "accounts/sign_in_over.html", {"state": state.value}, status=status)


class SignIn(LoginView):
    """Both forms are sent here; the one with a password says so by its field."""

    form_class = SignInForm  # type: ignore[assignment]  # The stubs want a `username` field.
    template_name = "accounts/sign_in.html"
    redirect_authenticated_user = True

    def get_redirect_url(self, request: HttpRequest | None = None) -> str:
        """Where `next` leads within Forge; "" when it leads elsewhere or back to this page."""
        asked = self.request.POST.get("next", self.request.GET.get("next", ""))
        return within_forge(self.request, asked)

    def get_context_data(self, **context: Any) -> dict[str, Any]:
        typed = self.request.POST.get("email", "")
        context.setdefault("mail_form", MailForm(initial={"email": typed}))
        return super().get_context_data(is_new=not has_administrator(), **context)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if "password" in request.POST:
            return super().post(request, *args, **kwargs)
        mail_form = MailForm(request.POST)
        if mail_form.is_valid():
            return self.send_mail(mail_form.cleaned_data["email"])
        form = self.form_class(request)
        return self.render_to_response(self.get_context_data(mail_form=mail_form, form=form))

    def send_mail(self, typed: str) -> HttpResponse:
        """The same answer for every address; raises TooMany, which knows networks only."""
        network = network_of(self.request)
        demand(ASKED_FROM_NETWORK, network)
        who = plain(typed).lower()
        may_send = may_mail(who, network=network)
        response = redirect("sign_in_code")
        before = Asked.by(self.request)
        # Who asks twice goes on with the mail that is under way.
        if may_send or before is None or plain(before.address).lower() != who:
            leads_to = self.get_redirect_url()
            row = ask(self.request, typed, leads_to=leads_to, may_send=may_send)
            Asked(row=row.pk, address=typed).keep(response)
        return response


@method_decorator(
    [login_not_required, never_cache, sensitive_post_parameters("code")], name="dispatch"
)
class SignInCode(View):
    """What every address is answered, with a field for the code."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        asked = Asked.by(request)
        if request.user.is_authenticated or asked is None:
            return redirect("home" if request.user.is_authenticated else "sign_in")
        return super().dispatch(request, asked)

    def get(self, request: HttpRequest, asked: Asked) -> HttpResponse:
        return self.page(request, asked, CodeForm())

    def post(self, request: HttpRequest, asked: Asked) -> HttpResponse:
        form = CodeForm(request.POST)
        if not form.is_valid():
            return self.page(request, asked, form)
        try:
            row = self.tried(request, asked, form.cleaned_data["code"])
            if person_of(row) is None:
                return redirect("sign_in_link", link_for(row))
            return begin(request, sign_in_by(row), leads_to=row.leads_to)
        except WrongCode as wrong:
            form.say_wrong(wrong.left)
            return self.page(request, asked, form)
        except Over as end:
            # This browser did ask, so what is not there any more was swept.
            return over(request, State.EXPIRED if end.state is State.UNKNOWN else end.state)

    def tried(self, request: HttpRequest, asked: Asked, code: str) -> SignInToken:
        # None for the address: five codes for each of its mails are few, and by a limit of the
        # address a stranger could keep its owner out.
        network = network_of(request)
        demand(CODES_FROM_NETWORK, network)
        right = try_code(asked.row, code)
        give_back(CODES_FROM_NETWORK, network)
        return right

    def page(self, request: HttpRequest, asked: Asked, form: CodeForm) -> HttpResponse:
        words = {"form": form, "address": asked.address}
        return render(request, "accounts/sign_in_code.html", words)


@method_decorator([login_not_required, never_cache], name="dispatch")
class SignInLink(View):
    """The page behind a mailed link. Programs that scan mail open links, so only POST consumes."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        token = kwargs["token"]
        hide_token(request, token)
        state, row = found(token)
        response = over(request, state) if row is None else self.answer(request, row)
        # Nobody is told the token, this Forge's own pages included; and unlike `no-referrer` it
        # lets the browser say where a form comes from.
        response["Referrer-Policy"] = "strict-origin"
        return response

    def answer(self, request: HttpRequest, row: SignInToken) -> HttpResponseBase:
        try:
            person = person_of(row)
            speak_to(person)
            return super().dispatch(request, row=row, person=person)
        except Over as end:
            return over(request, end.state)

    def get(self, request: HttpRequest, *, row: SignInToken, person: User | None) -> HttpResponse:
        return self.page(request, row, person, HandleForm())

    def post(self, request: HttpRequest, *, row: SignInToken, person: User | None) -> HttpResponse:
        if person:
            return begin(request, sign_in_by(row), leads_to=row.leads_to)
        form = HandleForm(request.POST, instance=User(email=row.address))
        if not form.is_valid():
            return self.page(request, row, None, form)
        try:
            newcomer = join_by(row, form.save(commit=False))
        except IntegrityError:
            return self.after_a_race(request, row)
        return begin(request, newcomer, leads_to=row.leads_to)

    def after_a_race(self, request: HttpRequest, row: SignInToken) -> HttpResponse:
        """Somebody has just taken the address, who then is the same person, or the handle."""
        person = person_of(row)
        if person:
            return begin(request, sign_in_by(row), leads_to=row.leads_to)
        form = HandleForm(request.POST, instance=User(email=row.address))
        form.is_valid()
        return self.page(request, row, None, form)

    def page(
        self, request: HttpRequest, row: SignInToken, person: User | None, form: HandleForm
    ) -> HttpResponse:
        words = {"person": person, "address": row.address, "form": form}
        return render(request, "accounts/sign_in_link.html", words)
