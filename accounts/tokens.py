"""Secrets in the addresses of pages: made, hashed for the database, and kept out of reports."""

import hashlib
import secrets

from django.http import HttpRequest


def new_token() -> str:
    """256 bits that nobody guesses, as they stand in an address."""
    return secrets.token_urlsafe(32)


def hash_of(token: str) -> str:
    """What the database keeps: a copy of it opens nothing."""
    return hashlib.sha256(token.encode()).hexdigest()


def hide_token(request: HttpRequest, token: str) -> None:
    """Take the token out of the request's address, which logs and error mails repeat."""
    path = f"{request.path.removesuffix(token)}***"
    request.path = request.path_info = request.META["PATH_INFO"] = path
    if request.resolver_match:
        request.resolver_match.kwargs = {}
