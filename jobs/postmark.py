"""Postmark, by its HTTP API."""

import ssl
import threading
from collections.abc import Iterable
from typing import Any

import requests
from django.conf import settings
from django.core.mail import EmailMessage, InvalidMailer
from django.core.mail.backends.base import BaseEmailBackend
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError
from urllib3.exceptions import SSLError as TlsError

from jobs.delivery import Receipt, Unauthorized, Unsure, seconds_of
from jobs.engine.retry import Failed, Permanent, RetryAfter
from jobs.engine.text import clean
from jobs.postmark_mail import payload

API_URL = "https://api.postmarkapp.com"
TIMEOUTS = (5, 15)
"""Seconds to connect, and to wait for an answer."""
INACTIVE = "inactive addresses:"
# What one mail cannot be blamed for. By status: no access, unpaid, or no Postmark at this address.
REFUSES_ALL_STATUS = {402, 403, 404}
# By ErrorCode: no credits, the account is not approved yet (two of them), no such stream.
REFUSES_ALL = {405, 412, 413, 1235}
# A sender that Postmark does not know, or has not confirmed.
REFUSES_SENDER = {400, 401}
SECONDS_UNTIL_NEXT_TRY = 600.0
"""What only a mail can find out is tried again by mails, so not as often as a token is probed."""
MAINTENANCE = 100

_local = threading.local()


def session() -> requests.Session:
    """This thread's own, so that a worker's seat keeps its connection."""
    if not hasattr(_local, "session"):
        _local.session = requests.Session()
    found: requests.Session = _local.session
    return found


class PostmarkBackend(BaseEmailBackend):
    """A provider as in `jobs.delivery`, and a mail backend like any other."""

    can_find = True

    def __init__(
        self, *, token: str = "", api_url: str = API_URL, stream: str = "outbound", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if not token:
            raise InvalidMailer("OPTIONS must define 'token'.", alias=kwargs.get("alias"))
        self._url = api_url.rstrip("/")
        self._stream = stream
        self._headers = {"Accept": "application/json", "X-Postmark-Server-Token": token}

    def send_messages(self, email_messages: Iterable[EmailMessage]) -> int:
        return sum(bool(self.deliver(message, key="")) for message in email_messages)

    def deliver(self, message: EmailMessage, *, key: str) -> Receipt:
        answer = self._ask("POST", "/email", json=payload(message, key=key, stream=self._stream))
        told = _json(answer)
        if not _good(answer) or told.get("ErrorCode", 0) != 0:
            raise _refusal(answer, told, ours=message.from_email == settings.DEFAULT_FROM_EMAIL)
        if "MessageID" not in told:
            raise Unsure("Postmark's answer is none of Postmark's.")
        words = clean(str(told.get("Message", "")))
        return Receipt(str(told["MessageID"])[:100], words, _inactive(words))

    def find(self, key: str) -> Receipt | None:
        try:
            return self._found(key)
        except Unsure as error:
            raise error.failure() from error
        except Permanent as error:
            # Only the question was refused, not the mail.
            raise Failed(str(error)) from error

    def _found(self, key: str) -> Receipt | None:
        query = {
            "count": "1",
            "offset": "0",
            "messagestream": self._stream,
            "metadata_jobid": key,
        }
        answer = self._ask("GET", "/messages/outbound", params=query)
        told = _json(answer)
        if not _good(answer):
            raise _refusal(answer, told)
        if not isinstance(told.get("Messages"), list):
            raise Failed("Postmark's answer to a search is none of Postmark's.")
        for entry in told["Messages"]:
            # A server that knows no search by metadata must not make us take another mail for ours.
            if (entry.get("Metadata") or {}).get("jobid", key) == key:
                return Receipt(str(entry["MessageID"])[:100], "Found at Postmark by its metadata.")
        return None

    def probe(self) -> None:
        answer = self._ask("GET", "/server")
        if not _good(answer):
            raise _refusal(answer, _json(answer))

    def _ask(self, method: str, path: str, **options: Any) -> requests.Response:
        try:
            return session().request(
                method,
                self._url + path,
                headers=self._headers,
                timeout=TIMEOUTS,
                # The token must not follow to another host.
                allow_redirects=False,
                **options,
            )
        except requests.RequestException as error:
            reason = f"Postmark cannot be reached: {type(error).__name__}."
            raise (Failed(reason) if _never_connected(error) else Unsure(reason)) from error


def _never_connected(error: requests.RequestException) -> bool:
    """Whether the request certainly did not leave."""
    cause = getattr(_first(error), "reason", None)
    if isinstance(cause, TlsError):
        # Of the faults of TLS only this one cannot come after the request.
        return isinstance(_first(cause), ssl.SSLCertVerificationError)
    return isinstance(cause, (NewConnectionError, ConnectTimeoutError))


def _first(error: Exception) -> Any:
    return error.args[0] if error.args else None


def _good(answer: requests.Response) -> bool:
    return 200 <= answer.status_code < 300


def _json(answer: requests.Response) -> dict[str, Any]:
    try:
        told = answer.json()
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _refusal(answer: requests.Response, told: dict[str, Any], *, ours: bool = True) -> Exception:
    """The exception that says what an answer without a mail's id means.

    `ours`: the mail has the sender that all mails have, so it goes like this one with all of them.
    """
    status, code = answer.status_code, told.get("ErrorCode")
    words = clean(str(told.get("Message") or answer.reason or "")).strip()
    reason = f"Postmark answered {status}{f', code {code}' if code else ''}: {words}"
    if status == 401:
        return Unauthorized(f"Postmark does not accept POSTMARK_SERVER_TOKEN: {words}")
    if status in REFUSES_ALL_STATUS or code in REFUSES_ALL or (ours and code in REFUSES_SENDER):
        return Unauthorized(reason, probe_in=SECONDS_UNTIL_NEXT_TRY)
    seconds = seconds_of(answer.headers.get("Retry-After"))
    # Postmark itself never answers 400: something in front of it did.
    if status in (400, 408, 425, 429, 503) or 300 <= status < 400 or code == MAINTENANCE:
        return Failed(reason) if seconds is None else RetryAfter(seconds, reason)
    if status >= 500:
        return Unsure(reason, seconds=seconds)
    return Permanent(reason)


def _inactive(words: str) -> dict[str, str]:
    """The addresses that Postmark says it leaves out of a mail that it takes."""
    _before, found, after = words.partition(INACTIVE)
    listed = after.split(" Inactive ")[0].split(",") if found else []
    return {address.strip().rstrip("."): "inactive" for address in listed if address.strip()}
