"""A project that has the engine and nothing else of Forge, and a strict content policy."""

import environ
from django.utils.csp import CSP

SECRET_KEY = "of no other use than these tests"
ALLOWED_HOSTS = ["127.0.0.1"]
DATABASES = {"default": environ.Env().db_url("DATABASE_URL")}
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.staticfiles",
    "jobs.engine",
    "tests.kinds",
    "tests.bars",
]
MIDDLEWARE = ["django.middleware.csp.ContentSecurityPolicyMiddleware"]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {"context_processors": ["django.template.context_processors.csp"]},
    },
]
ROOT_URLCONF = "tests.bars.urls"
STATIC_URL = "static/"
SECURE_CSP = {
    "default-src": [CSP.NONE],
    "script-src": [CSP.NONCE],
    "style-src": [CSP.NONCE],
    "connect-src": [CSP.SELF],
    "img-src": ["data:"],
}
