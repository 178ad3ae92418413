"""The first administrator: a fresh Forge prints a link, and whoever opens it first is the one."""

from django.db import transaction
from django.db.models.functions import Now
from django.urls import reverse

from accounts.models import SetupToken, User
from accounts.tokens import hash_of, new_token


class LinkIsOver(Exception):
    """The link was used, was replaced by a newer one, or Forge has an administrator already."""


def has_administrator() -> bool:
    return User.objects.filter(is_superuser=True, is_active=True).exists()


def setup_link(base_url: str) -> str | None:
    """A fresh one-time link under `base_url`, or None when there is an administrator.

    A fresh link ends the older ones.
    """
    if has_administrator():
        return None
    token = new_token()
    SetupToken.objects.update_or_create(
        pk=SetupToken.THE_ONE,
        defaults={"token_hash": hash_of(token), "created_at": Now(), "used_at": None},
    )
    return base_url.rstrip("/") + reverse("welcome", args=[token])


def is_open(token: str) -> bool:
    """Whether this link would make an administrator now."""
    unused = SetupToken.objects.filter(token_hash=hash_of(token), used_at=None)
    return unused.exists() and not has_administrator()


def make_first_administrator(token: str, *, person: User) -> User:
    """Consume the link and save `person` as superuser, both or neither; else LinkIsOver."""
    with transaction.atomic():
        consumed = SetupToken.objects.filter(token_hash=hash_of(token), used_at=None).update(
            used_at=Now()
        )
        # Asked after the update, whose row lock lets one request at a time come this far: a link
        # made just before another one was used would otherwise make a second administrator.
        if consumed != 1 or has_administrator():
            raise LinkIsOver
        person.is_staff = person.is_superuser = True
        person.save()
    return person
