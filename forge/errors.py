"""The pages for what went wrong: a database that does not answer is told apart from our faults."""

import sys
from typing import Any

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.views import defaults

SECONDS_TO_COME_BACK = 10
# SQLite says so of tables and columns that are not there: no waiting cures that.
NOT_THERE = "no such "


def server_error(request: HttpRequest) -> HttpResponse:
    """503 while the database does not answer or takes nothing, else 500."""
    if is_weather(sys.exc_info()[1]):
        return _away()
    return defaults.server_error(request)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """400; 503 if it is only that the session could not be written."""
    if is_weather(exception):
        return _away()
    return defaults.bad_request(request, exception)


def is_weather(error: BaseException | None) -> bool:
    """Whether the database's absence is what an exception, or one behind it, is about."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, OperationalError | InterfaceError):
            return not str(error).startswith(NOT_THERE)
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _away() -> HttpResponse:
    headers: dict[str, Any] = {"Retry-After": SECONDS_TO_COME_BACK, "Cache-Control": "no-store"}
    return HttpResponse(render_to_string("503.html"), status=503, headers=headers)
