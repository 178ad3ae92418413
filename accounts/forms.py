"""Forms in which people say who they are."""

from typing import Any

from django import forms
from django.contrib.auth import authenticate
from django.contrib.auth.forms import AdminUserCreationForm, BaseUserCreationForm
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django.views.decorators.debug import sensitive_variables

from accounts.models import User


class SignInForm(forms.Form):
    email = forms.EmailField(
        label=_("E-mail address"),
        widget=forms.EmailInput(attrs={"autocomplete": "username", "autofocus": True}),
    )
    password = forms.CharField(
        label=_("Password"),
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.request = request
        self.person: User | None = None

    @sensitive_variables("cleaned")
    def clean(self) -> dict[str, Any]:
        cleaned = self.cleaned_data
        if "email" in cleaned and "password" in cleaned:
            # ModelBackend hashes once even for an unknown address, so time tells nothing either.
            self.person = authenticate(
                self.request, username=cleaned["email"], password=cleaned["password"]
            )
            if self.person is None:
                raise ValidationError(
                    _("That e-mail address and password do not belong together."), code="wrong"
                )
        return cleaned

    def get_user(self) -> User | None:
        return self.person


class FirstAdministratorForm(BaseUserCreationForm[User]):
    class Meta:
        model = User
        fields = ("email", "handle")
        help_texts = {
            "email": _("You sign in with it."),
            "handle": _("Your name in addresses, as in /ada/engine: letters, digits, hyphens."),
        }
        widgets = {
            "email": forms.EmailInput(attrs={"autocomplete": "username"}),
            "handle": forms.TextInput(attrs={"autocapitalize": "none", "spellcheck": "false"}),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, label in (("password1", _("Password")), ("password2", _("Password again"))):
            self.fields[name].label = label
        self.fields["password2"].help_text = ""


class NewPersonForm(AdminUserCreationForm[User]):
    """The admin's form for adding somebody."""

    class Meta:
        model = User
        fields = ("email", "handle")
