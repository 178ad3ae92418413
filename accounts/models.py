"""People: an e-mail address signs in, a handle owns repositories in addresses."""

import re
import uuid
from collections.abc import Collection
from typing import Any, Self

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import models
from django.db.models.functions import Lower, Now
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from accounts import languages
from accounts.addresses import spellings, validate_deliverable
from accounts.mail_choices import switch_off_path

# First parts of addresses that Forge uses or may come to use itself.
RESERVED_HANDLES = frozenset(
    """
    about account accounts activity admin api assets auth commits dashboard docs explore export
    exports favicon.ico forge groups healthz help import imports issues jobs login logout mail me
    media metrics new notifications oauth organizations outbox preferences profile readyz
    repositories robots.txt search security settings setup sign-in sign-out sign-up static user
    users webhooks welcome
    """.split()
)
# ASCII, because without it IGNORECASE lets the Kelvin sign pass as a k.
HANDLE = re.compile(r"[a-z0-9](?:[a-z0-9]|-(?=[a-z0-9])){0,38}", re.IGNORECASE | re.ASCII)


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

    def _with_email(self, email: str | None) -> "models.QuerySet[User]":
        # The database lowers both sides, so that its unique index answers and agrees.
        email = self.normalize_email(self.model.normalize_username(email or ""))
        return self.alias(lowered=Lower("email")).filter(lowered=Lower(models.Value(email)))

    def get_by_natural_key(self, username: str | None) -> "User":
        """The person whom this e-mail address signs in, in whatever case it is written."""
        return self._with_email(username).get()

    def at(self, address: str) -> "User | None":
        """The person who gets mail at the address, however its domain is spelled; one query."""
        ways = [Lower(models.Value(self.normalize_email(way))) for way in spellings(address)]
        found = list(self.alias(lowered=Lower("email")).filter(lowered__in=ways))
        return min(found, key=lambda one: one.email.lower() != address.lower(), default=None)

    async def aget_by_natural_key(self, username: str | None) -> "User":
        return await self._with_email(username).aget()


class User(AbstractBaseUser, PermissionsMixin):
    email = models.EmailField(
        _("e-mail address"),
        unique=True,
        validators=[validate_deliverable],
        error_messages={"unique": _("Somebody already has this e-mail address.")},
    )
    handle = models.CharField(_("handle"), max_length=39, validators=[validate_handle])
    is_staff = models.BooleanField(_("may use the admin"), default=False)
    is_active = models.BooleanField(_("active"), default=True)
    created_at = models.DateTimeField(_("created"), default=timezone.now, editable=False)
    language = models.CharField(
        _("language"), max_length=10, choices=languages.choices, blank=True, default=""
    )
    """Empty until the person signs in for the first time, or chooses one."""
    mail_completed = models.BooleanField(_("when an import is completed"), default=True)
    mail_failed = models.BooleanField(_("when an import has failed for good"), default=True)

    objects = UserManager()

    MAIL_CHOICES = ("mail_completed", "mail_failed")
    """The columns that say which mails the person wants; their names say when such a mail comes."""

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
                violation_error_code="email",
                violation_error_message=_("Somebody already has this e-mail address."),
            ),
            models.UniqueConstraint(
                Lower("handle"),
                name="user_handle_unique",
                violation_error_code="handle",
                violation_error_message=_("Somebody already has this handle."),
            ),
        ]

    def __str__(self) -> str:
        return self.handle

    def clean(self) -> None:
        super().clean()
        self.email = User.objects.normalize_email(self.email)

    def validate_unique(self, exclude: Collection[str] | None = None) -> None:
        """Two spellings of one domain make no second person either."""
        super().validate_unique(exclude)
        if "email" in (exclude or ()):
            return
        holder = User.objects.at(self.email)
        if holder and holder.pk != self.pk:
            raise ValidationError({"email": self.unique_error_message(User, ("email",))})

    def validate_constraints(self, exclude: Collection[str] | None = None) -> None:
        """Say at the field, not above the form, that an e-mail address or handle is taken."""
        try:
            super().validate_constraints(exclude=exclude)
        except ValidationError as error:
            # A constraint on an expression has no field; its code says which one it means.
            taken = error.error_dict.pop(NON_FIELD_ERRORS, [])
            for one in taken:
                error.error_dict.setdefault(str(one.code), []).append(one)
            raise

    def get_full_name(self) -> str:
        return self.handle

    def get_short_name(self) -> str:
        return self.handle

    def switch_off_path(self, choice: str) -> str:
        """Where whoever reads a mail switches its sort off, without signing in."""
        return switch_off_path(self, choice)


class SignInTokens(models.QuerySet["SignInToken"]):
    def open(self) -> Self:
        """Those that would still sign somebody in."""
        return self.filter(
            used_at=None, expires_at__gt=Now(), codes_tried__lt=SignInToken.MOST_CODES
        )

    def to(self, address: str) -> Self:
        return self.alias(lowered=Lower("address")).filter(lowered=Lower(models.Value(address)))


class SetupToken(models.Model):
    """The one-time link that makes the first administrator: one row, the newest link.

    Only a hash is kept, so that a copy of the database opens nothing.
    """

    THE_ONE = 1

    id = models.PositiveSmallIntegerField(primary_key=True, default=THE_ONE, editable=False)
    token_hash = models.CharField(max_length=64)
    created_at = models.DateTimeField(db_default=Now())
    used_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(id=1), name="setup_token_is_one_row"),
        ]

    def __str__(self) -> str:
        return str(self.created_at)


class SignInToken(models.Model):
    """One mail that signs in by its link or its code, for whoever has the address by then.

    Of both only hashes are kept. Each question for a mail makes a row, also one that no mail goes
    out for: nobody knows that row's link, no code is its, and it answers codes as wrong ones.
    """

    MOST_CODES = 5

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    token_hash = models.CharField(max_length=64, unique=True)
    code_hash = models.CharField(max_length=64)
    address = models.EmailField()
    leads_to = models.CharField(max_length=2000)
    """Where in Forge the person wanted to go; "" for the first page."""
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(db_index=True)
    used_at = models.DateTimeField(null=True)
    codes_tried = models.PositiveSmallIntegerField(default=0)

    objects = SignInTokens.as_manager()

    class Meta:
        indexes = [models.Index(Lower("address"), name="sign_in_token_address")]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(codes_tried__lte=5), name="sign_in_token_codes_tried"
            ),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class Allowance(models.Model):
    """How far somebody has used up a limit; who and which limit is only in the key's hash.

    `used_until` runs ahead of the clock by a step with each use, and the clock catches up: a row
    in the past means nothing.
    """

    key = models.CharField(primary_key=True, max_length=64)
    used_until = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return str(self.used_until)
