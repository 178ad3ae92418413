"""What a project includes so that its progress bars move: `path("jobs/", include("jobs.engine.urls"))`."""

from django.urls import path

from jobs.engine import views

app_name = "jobs_engine"
urlpatterns = [
    path("<str:token>", views.state, name="progress_state"),
    # Servers may give addresses that end in `stream` threads of their own.
    path("<str:token>/stream", views.stream, name="progress_stream"),
]
