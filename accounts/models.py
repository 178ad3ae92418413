"""People: an e-mail address signs in, a handle owns repositories in addresses."""

import re
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models.functions import Lower
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

# First parts of addresses that Forge uses or may come to use itself.
RESERVED_HANDLES = frozenset(
    """
    about account accounts admin api assets commits explore export favicon.ico forge help
    healthz import imports jobs login logout me media metrics new outbox readyz robots.txt
    search settings setup sign-in sign-out sign-up static user users welcome
    """.split()
)
HANDLE = re.compile(r"[a-z0-9](?:[a-z0-9]|-(?=[a-z0-9])){0,38}", re.IGNORECASE)


def validate_handle(handle: str) -> None:
    """Letters, digits and single inner hyphens, 39 at most, and no word that Forge needs."""
    if not HANDLE.fullmatch(handle):
        raise ValidationError(
            _("Use 1 to 39 letters, digits or single hyphens, not at the start or the end."),
            code="invalid",
        )
    if handle.lower() in RESERVED_HANDLES:
        raise ValidationError(
            _("“%(handle)s” is reserved."), code="reserved", params={"handle": handle}
        )


class UserManager(BaseUserManager["User"]):
    def create_user(
        self, *, email: str, handle: str, password: str | None = None, **fields: Any
    ) -> "User":
        """Make a person; raises ValidationError that names the field."""
        user = self.model(email=self.normalize_email(email), handle=handle, **fields)
        user.set_password(password)
        user.full_clean()
        user.save(using=self._db)
        return user

    def create_superuser(
        self, *, email: str, handle: str, password: str | None = None, **fields: Any
    ) -> "User":
        return self.create_user(
            email=email,
            handle=handle,
            password=password,
            is_staff=True,
            is_superuser=True,
            **fields,
        )

    def get_by_natural_key(self, username: str | None) -> "User":
        return self.get(email__iexact=username)


class User(AbstractBaseUser, PermissionsMixin):
    email = models.EmailField(
        _("e-mail address"),
        unique=True,
        error_messages={"unique": _("Somebody already has this e-mail address.")},
    )
    handle = models.CharField(_("handle"), max_length=39, validators=[validate_handle])
    is_staff = models.BooleanField(_("may use the admin"), default=False)
    is_active = models.BooleanField(_("active"), default=True)
    created_at = models.DateTimeField(_("created"), default=timezone.now, editable=False)

    objects = UserManager()

    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS = ["handle"]

    class Meta:
        verbose_name = _("person")
        verbose_name_plural = _("people")
        constraints = [
            models.UniqueConstraint(
                Lower("email"),
                name="user_email_unique",
                violation_error_message=_("Somebody already has this e-mail address."),
            ),
            models.UniqueConstraint(
                Lower("handle"),
                name="user_handle_unique",
                violation_error_message=_("Somebody already has this handle."),
            ),
        ]

    def __str__(self) -> str:
        return self.handle

    def get_full_name(self) -> str:
        return self.handle

    def get_short_name(self) -> str:
        return self.handle
