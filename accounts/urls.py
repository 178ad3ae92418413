"""Addresses of accounts."""

from django.urls import path

from accounts import views

urlpatterns = [
    path("sign-in", views.SignIn.as_view(), name="sign_in"),
    path("sign-out", views.sign_out, name="sign_out"),
    path("welcome/<token>", views.Welcome.as_view(), name="welcome"),
]
