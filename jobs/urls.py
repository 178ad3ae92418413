"""Addresses of jobs."""

from django.urls import path

from jobs import views

urlpatterns = [
    path("import", views.start_import, name="start_import"),
    path("import/<uuid:pk>/progress", views.import_progress, name="import_progress"),
    path("import/<uuid:pk>/stream", views.import_stream, name="import_stream"),
    path("import/<uuid:pk>/cancel", views.cancel_import, name="cancel_import"),
    path("import/<uuid:pk>/retry", views.retry_import, name="retry_import"),
    path("jobs", views.job_list, name="job_list"),
]
