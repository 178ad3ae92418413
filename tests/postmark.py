"""A local server that answers as Postmark's documentation says, and remembers what it was sent."""

import json
import threading
import time
import uuid
from collections.abc import Iterator
from email.headerregistry import AddressHeader
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from tests.postgres import free_port

TOKEN = "f0e1-right-token"
INACTIVE_REASON = (
    "Inactive recipients are ones that have generated a hard bounce or a spam complaint."
)


class Postmark:
    """One server with one token; tests set how it behaves."""

    def __init__(self) -> None:
        self.port = free_port()
        self.token = TOKEN
        self.mails: list[dict[str, Any]] = []
        """What was accepted, in that order."""
        self.asked: list[tuple[str, str]] = []
        self.inactive: set[str] = set()
        self.seconds = 0.0
        self.next: list[Response | None] = []
        """Answers to the next mails in place of the usual one; None is the usual one."""
        self.searches: list[Response] = []
        """Answers to the next searches in place of the usual one."""
        self.loses_answers = False
        """Takes mails and never says so."""
        self.released = threading.Event()
        self._lock = threading.Lock()
        self._server: HTTPServer | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._server = HTTPServer(host="127.0.0.1", port=self.port, threaded=True)
        for path, handler in (
            ("/email", self._email),
            ("/messages/outbound", self._search),
            ("/server", self._about),
        ):
            self._server.expect_request(path).respond_with_handler(handler)
        self._server.start()

    def stop(self) -> None:
        self.released.set()
        if self._server is not None:
            self._server.stop()
            self._server = None

    def mailer(self, **options: Any) -> dict[str, Any]:
        told = {"token": TOKEN, "api_url": self.url, "stream": "outbound", **options}
        return {"BACKEND": "jobs.postmark.PostmarkBackend", "OPTIONS": told}

    @property
    def environment(self) -> dict[str, str]:
        return {"POSTMARK_SERVER_TOKEN": TOKEN, "POSTMARK_API_URL": self.url}

    def sent(self, subject: str) -> list[dict[str, Any]]:
        return [mail for mail in self.mails if mail["Subject"] == subject]

    def take(self, mail: dict[str, Any]) -> None:
        with self._lock:
            mail["MessageID"] = str(uuid.uuid4())
            mail["at"] = time.time()
            self.mails.append(mail)

    # What it answers.

    def _email(self, request: Request) -> Response:
        refused = self._refused(request)
        if refused:
            return refused
        time.sleep(self.seconds)
        with self._lock:
            special = self.next.pop(0) if self.next else None
        if special is not None:
            return special
        mail: Any = request.get_json()
        wrong = self._wrong(mail)
        if wrong:
            return wrong
        self.take(mail)
        if self.loses_answers:
            self.released.wait(60)
        dead = sorted(self.inactive & set(_addresses(mail)))
        told = "OK"
        if dead:
            told = f"Message OK, but will not deliver to these inactive addresses: {', '.join(dead)}. {INACTIVE_REASON}"
        return answer(
            {
                # It names them where there are any.
                **({"To": mail["To"]} if "To" in mail else {}),
                "SubmittedAt": "2026-11-30T07:25:01.4178645-05:00",
                "MessageID": mail["MessageID"],
                "ErrorCode": 0,
                "Message": told,
            }
        )

    def _wrong(self, mail: dict[str, Any]) -> Response | None:
        addresses = _addresses(mail)
        if not addresses or not all(one.partition("@")[2].isascii() for one in addresses):
            return problem(300, f"Invalid 'To' address: '{mail.get('To')}'.")
        if not (mail.get("TextBody") or mail.get("HtmlBody")):
            return problem(300, "Provide either email TextBody or HtmlBody or both.")
        if self.inactive >= set(addresses):
            told = ", ".join(sorted(addresses))
            return problem(
                406,
                "You tried to send to recipient(s) that have been marked as inactive. "
                f"Found inactive addresses: {told}. {INACTIVE_REASON}",
            )
        return None

    def _search(self, request: Request) -> Response:
        refused = self._refused(request)
        if refused:
            return refused
        if self.searches:
            return self.searches.pop(0)
        assert request.args["count"] and request.args["offset"] == "0"
        key = request.args["metadata_jobid"]
        found = [
            {"MessageID": mail["MessageID"], "Status": "Sent", "Metadata": mail["Metadata"]}
            for mail in self.mails
            if mail["Metadata"]["jobid"] == key
            and mail["MessageStream"] == request.args["messagestream"]
        ]
        return answer({"TotalCount": len(found), "Messages": found})

    def _about(self, request: Request) -> Response:
        return self._refused(request) or answer({"ID": 1, "Name": "Forge"})

    def _refused(self, request: Request) -> Response | None:
        self.asked.append((request.method, request.path))
        assert request.headers["Accept"] == "application/json"
        if request.headers.get("X-Postmark-Server-Token") != self.token:
            return problem(10, "Request does not contain a valid Server token.", status=401)
        return None


def answer(told: dict[str, Any], *, status: int = 200, **headers: str) -> Response:
    return Response(json.dumps(told), status=status, headers=headers, mimetype="application/json")


def problem(code: int, words: str, *, status: int = 422) -> Response:
    return answer({"ErrorCode": code, "Message": words}, status=status)


def _addresses(mail: dict[str, Any]) -> list[str]:
    told = ", ".join(filter(None, (mail.get(name) for name in ("To", "Cc", "Bcc"))))
    parsed: Any = AddressHeader.value_parser(told)
    return [mailbox.addr_spec.lower() for mailbox in parsed.all_mailboxes if mailbox.domain]


@pytest.fixture
def postmark() -> Iterator[Postmark]:
    server = Postmark()
    yield server
    server.stop()
