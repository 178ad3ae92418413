"""What Forge asks of every request, and does for it, before anything reads it."""

from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.urls import Resolver404, resolve
from django.utils.decorators import sync_and_async_middleware
from django.utils.deprecation import MiddlewareMixin

from accounts.languages import speak_to

CHARSETS = {"utf-8", "utf8", "us-ascii", "ascii"}

Handler = Callable[[HttpRequest], HttpResponse] | Callable[[HttpRequest], Awaitable[HttpResponse]]


@sync_and_async_middleware
def only_utf8(get_response: Handler) -> Handler:
    """Answer 400 to a body in another encoding.

    Python knows encodings that are no encodings of text, or that yield what no database takes;
    browsers send UTF-8. Mail programs that switch off a mail name what they like, and send ASCII.
    """

    def refused(request: HttpRequest) -> HttpResponse | None:
        charset = (
            request.content_params.get("charset", "utf-8") if request.content_params else "utf-8"
        )
        if charset.strip().lower() in CHARSETS:
            return None
        if _switches_off_a_mail(request):
            request.encoding = "utf-8"
            return None
        return HttpResponseBadRequest("Send this in UTF-8.\n", content_type="text/plain")

    if iscoroutinefunction(get_response):

        async def answer_later(request: HttpRequest) -> HttpResponse:
            return refused(request) or await get_response(request)

        return answer_later

    def answer(request: HttpRequest) -> HttpResponse:
        return refused(request) or get_response(request)  # type: ignore[return-value]

    return answer


def _switches_off_a_mail(request: HttpRequest) -> bool:
    """Whether it is for the address that `List-Unsubscribe` names."""
    try:
        return resolve(request.path_info).view_name == "switch_off_mail"
    except Resolver404:
        return False


@sync_and_async_middleware
def words_for_empty_answers(get_response: Handler) -> Handler:
    """A page that does not take a method says so, instead of nothing."""

    def told(response: HttpResponse) -> HttpResponse:
        if response.status_code == 405 and not response.streaming and not response.content:
            response["Content-Type"] = "text/plain; charset=utf-8"
            response.content = f"This address answers {response['Allow']} only.\n"
        return response

    if iscoroutinefunction(get_response):

        async def answer_later(request: HttpRequest) -> HttpResponse:
            return told(await get_response(request))

        return answer_later

    def answer(request: HttpRequest) -> HttpResponse:
        return told(get_response(request))  # type: ignore[arg-type]

    return answer


class TheirLanguage(MiddlewareMixin):
    """Whoever is signed in is answered in their language; LocaleMiddleware asks the browser."""

    def process_request(self, request: HttpRequest) -> None:
        # The word that the server lives must come while the database is away.
        if settings.SESSION_COOKIE_NAME in request.COOKIES and request.path_info != "/healthz":
            speak_to(request.user)
