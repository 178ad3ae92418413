"""Every address of Forge; the last pattern is a repository's, so all fixed words come first."""

from django.contrib import admin
from django.urls import include, path

from forge import views

handler400 = "forge.errors.bad_request"
handler500 = "forge.errors.server_error"

urlpatterns = [
    path("", views.home, name="home"),
    path("healthz", views.healthz, name="healthz"),
    path("admin/", admin.site.urls),
    path("", include("accounts.urls")),
    path("jobs/progress/", include("jobs.engine.urls")),
    path("", include("jobs.urls")),
    path("", include("repositories.urls")),
]
