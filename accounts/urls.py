"""Addresses of accounts."""

from django.urls import path

from accounts import preference_views, sign_in_views, views

urlpatterns = [
    path("sign-in", sign_in_views.SignIn.as_view(), name="sign_in"),
    path("sign-in/code", sign_in_views.SignInCode.as_view(), name="sign_in_code"),
    path("sign-in/<token>", sign_in_views.SignInLink.as_view(), name="sign_in_link"),
    path("preferences", preference_views.preferences, name="preferences"),
    path(
        "preferences/mail/<token>", preference_views.SwitchOffMail.as_view(), name="switch_off_mail"
    ),
    path("sign-out", views.sign_out, name="sign_out"),
    path("welcome/<token>", views.Welcome.as_view(), name="welcome"),
]
