"""People in the admin."""

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.utils.translation import gettext_lazy as _

from accounts.forms import NewPersonForm
from accounts.models import User


@admin.register(User)
class PersonAdmin(UserAdmin):  # type: ignore[type-arg]
    add_form = NewPersonForm
    ordering = ("handle",)
    list_display = ("handle", "email", "is_staff", "is_active", "last_login", "created_at")
    list_filter = ("is_staff", "is_superuser", "is_active", "groups")
    search_fields = ("handle", "email")
    readonly_fields = ("last_login", "created_at")
    fieldsets = (
        (None, {"fields": ("email", "handle", "password")}),
        (
            _("Permissions"),
            {"fields": ("is_active", "is_staff", "is_superuser", "groups", "user_permissions")},
        ),
        (_("Preferences"), {"fields": ("language", *User.MAIL_CHOICES)}),
        (_("Dates"), {"fields": ("last_login", "created_at")}),
    )
    add_fieldsets = (
        (
            None,
            {
                "classes": ("wide",),
                "fields": ("email", "handle", "usable_password", "password1", "password2"),
            },
        ),
    )
