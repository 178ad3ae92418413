from django.urls import include, path
from sales_report import views

urlpatterns = [
    path("", views.index, name="index"),
    path("reports/<uuid:pk>", views.report, name="report"),
    # Where the progress bars ask.
    path("jobs/", include("jobs.engine.urls")),
]
