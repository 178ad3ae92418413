"""Addresses of accounts."""

from django.urls import path

from accounts import sign_in_views, views

urlpatterns = [
    path("sign-in", sign_in_views.SignIn.as_view(), name="sign_in"),
    path("sign-in/code", sign_in_views.SignInCode.as_view(), name="sign_in_code"),
    path("sign-in/<token>", sign_in_views.SignInLink.as_view(), name="sign_in_link"),
    path("sign-out", views.sign_out, name="sign_out"),
    path("welcome/<token>", views.Welcome.as_view(), name="welcome"),
]
