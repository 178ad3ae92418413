"""What accounts answer before and after a view."""

import math

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.deprecation import MiddlewareMixin

from accounts.limits import TooMany


class SayTooMany(MiddlewareMixin):
    """A used-up limit is a page that says for how long."""

    def process_exception(self, request: HttpRequest, wrong: Exception) -> HttpResponse | None:
        if not isinstance(wrong, TooMany):
            return None
        seconds = math.ceil(wrong.wait.total_seconds())
        words = {"minutes": math.ceil(seconds / 60)}
        response = render(request, "429.html", words, status=429)
        response["Retry-After"] = str(seconds)
        response["Cache-Control"] = "no-store"
        return response
