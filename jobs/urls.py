"""Addresses of jobs."""

from django.urls import path

from jobs import outbox_views, views

urlpatterns = [
    path("import", views.start_import, name="start_import"),
    path("import/<uuid:pk>/progress", views.import_progress, name="import_progress"),
    path("import/<uuid:pk>/stream", views.import_stream, name="import_stream"),
    path("import/<uuid:pk>/cancel", views.cancel_import, name="cancel_import"),
    path("import/<uuid:pk>/retry", views.retry_import, name="retry_import"),
    path("jobs", views.job_list, name="job_list"),
    path("outbox", outbox_views.outbox_list, name="outbox"),
    path("outbox/<uuid:pk>", outbox_views.outbox_mail, name="outbox_mail"),
    path("outbox/<uuid:pk>/html", outbox_views.outbox_html, name="outbox_html"),
]
