"""What a person chooses for themselves: the language, and which mails they get."""

from typing import Any, cast

from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods
from django.views.generic import View

from accounts.forms import PreferencesForm
from accounts.languages import language_of, speak_to
from accounts.mail_choices import BadToken, opened
from accounts.models import User
from accounts.tokens import hide_token


@require_http_methods(["GET", "HEAD", "POST"])
def preferences(request: HttpRequest) -> HttpResponse:
    person = cast(User, request.user)
    if request.method != "POST":
        person.language = language_of(person)
        form = PreferencesForm(instance=person)
        return render(request, "accounts/preferences.html", {"form": form})
    form = PreferencesForm(request.POST, instance=User.objects.get(pk=person.pk))
    if not form.is_valid():
        return render(request, "accounts/preferences.html", {"form": form}, status=422)
    speak_to(form.save())
    messages.success(request, _("Your preferences are saved."))
    return redirect("preferences")


@method_decorator(
    # The token is the proof, and mail programs that switch off for their user have no cookie.
    [login_not_required, csrf_exempt, never_cache],
    name="dispatch",
)
class SwitchOffMail(View):
    """The page behind the address in a mail, and what `List-Unsubscribe-Post` posts to (RFC 8058).

    Programs that scan mail open links, so only POST switches off.
    """

    http_method_names = ["get", "head", "post"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        token = kwargs["token"]
        hide_token(request, token)
        try:
            pk, choice = opened(token)
        except BadToken:
            raise Http404 from None
        if choice not in User.MAIL_CHOICES:
            raise Http404
        person = get_object_or_404(User, pk=pk)
        speak_to(person)
        response = super().dispatch(request, person=person, choice=choice)
        response["Referrer-Policy"] = "no-referrer"
        return response

    def get(self, request: HttpRequest, *, person: User, choice: str) -> HttpResponse:
        when = User._meta.get_field(choice).verbose_name  # type: ignore[union-attr]
        words = {"person": person, "when": when, "is_on": getattr(person, choice)}
        return render(request, "accounts/switch_off_mail.html", words)

    def post(self, request: HttpRequest, *, person: User, choice: str) -> HttpResponse:
        User.objects.filter(pk=person.pk).update(**{choice: False})
        setattr(person, choice, False)
        return self.get(request, person=person, choice=choice)
