"""Forms in which people say who they are."""

import re
from typing import Any, cast

from django import forms
from django.contrib.auth import authenticate
from django.contrib.auth.forms import AdminUserCreationForm, BaseUserCreationForm
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from django.views.decorators.debug import sensitive_variables

from accounts import languages
from accounts.addresses import validate_deliverable
from accounts.models import User

HANDLE_HELP = _("Your name in addresses, as in /ada/engine: letters, digits, hyphens.")


class MailForm(forms.Form):
    """Asks for a mail that signs in."""

    email = forms.EmailField(
        label=_("E-mail address"),
        max_length=254,
        validators=[validate_deliverable],
        widget=forms.EmailInput(attrs={"autocomplete": "username", "autofocus": True}),
    )


class CodeForm(forms.Form):
    code = forms.CharField(
        label=_("Code"),
        max_length=20,
        widget=forms.TextInput(
            attrs={
                "autocomplete": "one-time-code",
                "inputmode": "numeric",
                "autofocus": True,
                "class": "mono",
            }
        ),
    )

    def clean_code(self) -> str:
        """Six digits, however they are grouped."""
        code = re.sub(r"[\s-]", "", self.cleaned_data["code"])
        if not re.fullmatch(r"[0-9]{6}", code):
            raise ValidationError(_("The code has six digits."), code="invalid")
        return code

    def say_wrong(self, left: int) -> None:
        told = ngettext(
            "That is not the code of the newest mail asked for in this browser. You can try once more.",
            "That is not the code of the newest mail asked for in this browser. "
            "You can try %(left)d times more.",
            left,
        )
        self.add_error("code", ValidationError(told % {"left": left}, code="wrong"))


class HandleForm(forms.ModelForm):  # type: ignore[type-arg]
    """Asks somebody new, whose address is proved, for a handle."""

    class Meta:
        model = User
        fields = ("handle",)
        help_texts = {"handle": HANDLE_HELP}
        widgets = {
            "handle": forms.TextInput(
                attrs={
                    "autocapitalize": "none",
                    "autocomplete": "nickname",
                    "autofocus": True,
                    "spellcheck": "false",
                }
            )
        }

    def save(self, commit: bool = True) -> User:
        self.instance.set_unusable_password()
        person: User = super().save(commit)
        return person


class PreferencesForm(forms.ModelForm):  # type: ignore[type-arg]
    """What a person chooses for themselves."""

    language = forms.ChoiceField(label=_("Language"), choices=languages.choices)

    class Meta:
        model = User
        fields = ("language", *User.MAIL_CHOICES)

    @property
    def mail_choices(self) -> list[forms.BoundField]:
        return [self[name] for name in User.MAIL_CHOICES]

    def save(self, commit: bool = True) -> User:
        """Write these columns alone: the rest of the row may have changed meanwhile."""
        User.objects.filter(pk=self.instance.pk).update(**self.cleaned_data)
        return cast(User, self.instance)


class SignInForm(forms.Form):
    email = forms.EmailField(
        label=_("E-mail address"),
        widget=forms.EmailInput(attrs={"autocomplete": "username"}),
    )
    password = forms.CharField(
        label=_("Password"),
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        # Its field has the name of the other form's on the same page.
        super().__init__(*args, **{"auto_id": "password_%s", **kwargs})
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
            "handle": HANDLE_HELP,
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
