"""Every address of Forge; the last pattern is a repository's, so all fixed words come first."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", include("accounts.urls")),
    path("", include("jobs.urls")),
    path("", include("repositories.urls")),
]
