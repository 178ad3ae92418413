"""Addresses of repositories. They match almost anything, so they come after all others."""

from django.urls import path

from repositories import views

urlpatterns = [path("<str:owner>/<str:name>", views.repository_page, name="repository")]
