"""Repositories: who owns which, who may see it, and where it lies."""

from pathlib import Path
from typing import Any, Protocol, Self

from django.conf import settings
from django.db import models, transaction
from django.db.models.functions import Lower, Now
from django.db.models.signals import post_delete
from django.dispatch import receiver
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from repositories import notices, storage
from repositories.slugs import MAX_SLUG, validate_slug


class Visitor(Protocol):
    """Whoever looks at a page: a person or nobody."""

    @property
    def is_authenticated(self) -> Any: ...
    @property
    def is_superuser(self) -> bool: ...
    @property
    def pk(self) -> Any: ...


class Visibility(models.TextChoices):
    PRIVATE = "private", _("Private")
    PUBLIC = "public", _("Public")


class RepositoryQuerySet(models.QuerySet["Repository"]):
    def visible_to(self, visitor: Visitor) -> Self:
        """What the visitor may know of: everything public, one's own, all for a superuser."""
        if not visitor.is_authenticated:
            return self.filter(visibility=Visibility.PUBLIC)
        if visitor.is_superuser:
            return self.all()
        return self.filter(models.Q(visibility=Visibility.PUBLIC) | models.Q(owner_id=visitor.pk))

    def named(self, owner: str, slug: str) -> Self:
        """The repository at `/<owner>/<slug>`, without regard to case."""
        names = self.alias(owner_handle=Lower("owner__handle"), lower_slug=Lower("slug"))
        return names.filter(owner_handle=owner.lower(), lower_slug=slug.lower())


class Repository(models.Model):
    """A published repository; its directory is there before its row and named by its id."""

    id = models.UUIDField(primary_key=True, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        related_name="repositories",
        verbose_name=_("owner"),
    )
    slug = models.CharField(_("name"), max_length=MAX_SLUG, validators=[validate_slug])
    visibility = models.CharField(
        _("visibility"), max_length=7, choices=Visibility, default=Visibility.PRIVATE
    )
    default_branch = models.CharField(_("default branch"), max_length=255, blank=True)
    head_oid = models.CharField(_("last commit"), max_length=64, blank=True)
    branch_count = models.PositiveIntegerField(_("branches"), default=0)
    tag_count = models.PositiveIntegerField(_("tags"), default=0)
    size_bytes = models.PositiveBigIntegerField(_("size in bytes"), default=0)
    source_url = models.CharField(_("source"), max_length=2048, blank=True)
    notice = models.CharField(_("notice"), max_length=100, blank=True)
    created_at = models.DateTimeField(_("created"), db_default=Now(), editable=False)
    imported_at = models.DateTimeField(_("imported"), null=True, blank=True)

    objects = RepositoryQuerySet.as_manager()

    class Meta:
        verbose_name = _("repository")
        verbose_name_plural = _("repositories")
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                "owner",
                Lower("slug"),
                name="repository_name_unique",
                violation_error_message=_("The owner already has a repository of this name."),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.owner.handle}/{self.slug}"

    def get_absolute_url(self) -> str:
        return reverse("repository", args=[self.owner.handle, self.slug])

    @property
    def path(self) -> Path:
        """The bare repository on the disk."""
        return storage.place(self.id)

    @property
    def clone_url(self) -> str:
        return f"{settings.FORGE_URL}{self.get_absolute_url()}.git"

    @property
    def public_source(self) -> str:
        """The URL that it was imported from; empty for a path on this machine."""
        return self.source_url if self.source_url.startswith(("https://", "http://")) else ""

    @property
    def notices(self) -> list[str | Promise]:
        """What a person should know of how it was imported, as sentences."""
        return notices.sentences(self.notice)


@receiver(post_delete, sender=Repository)
def remove_from_disk(instance: Repository, **_more: Any) -> None:
    """Remove the directory once the row is gone for good."""
    repository_id = instance.id
    transaction.on_commit(lambda: storage.withdraw(repository_id))
