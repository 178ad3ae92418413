"""Repositories in the admin: read, made public or private, deleted; never made here."""

from django.contrib import admin
from django.http import HttpRequest

from repositories.models import Repository


@admin.register(Repository)
class RepositoryAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # not subscriptable at run time
    list_display = ["slug", "owner", "visibility", "default_branch", "size_bytes", "created_at"]
    list_filter = ["visibility", "created_at"]
    list_select_related = ["owner"]
    search_fields = ["slug", "owner__handle", "source_url"]
    date_hierarchy = "created_at"
    readonly_fields = [
        *("id", "owner", "slug", "source_url", "notice", "default_branch", "head_oid"),
        *("branch_count", "tag_count", "size_bytes", "created_at", "imported_at"),
    ]
    fields = ["visibility", *readonly_fields]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """A repository comes from an import, which brings its files."""
        return False
