"""Requests that no browser sends are answered as such."""

import pytest
from asgiref.sync import async_to_sync
from django.http import HttpResponse
from django.test import AsyncClient, Client, RequestFactory

from forge.middleware import only_utf8

BODY = b'--x\r\nContent-Disposition: form-data; name="email"\r\n\r\n\\ud800\r\n--x--\r\n'


@pytest.mark.django_db
@pytest.mark.parametrize(
    "charset", ["raw_unicode_escape", "rot13", "idna", "hex", "undefined", "utf-7"]
)
@pytest.mark.parametrize("address", ["/sign-in", "/import"])
def test_a_body_in_an_odd_encoding_is_a_bad_request(charset: str, address: str) -> None:
    kind = f"multipart/form-data; boundary=x; charset={charset}"
    assert Client().generic("POST", address, BODY, content_type=kind).status_code == 400


@pytest.mark.django_db
def test_what_browsers_send_is_let_through() -> None:
    client = Client()
    answer = client.post("/sign-in", {"email": "ada@example.org", "password": "naïve"})
    assert answer.status_code == 200
    kind = "application/x-www-form-urlencoded; charset=UTF-8"
    assert client.generic("POST", "/sign-in", b"email=a", content_type=kind).status_code == 200


@pytest.mark.django_db(transaction=True)
def test_the_same_holds_for_the_server_that_runs_it() -> None:
    async def ask() -> int:
        client = AsyncClient()
        answer = await client.generic(
            "POST", "/sign-in", b"61", content_type="text/plain; charset=hex"
        )
        return int(answer.status_code)

    assert async_to_sync(ask)() == 400


@pytest.mark.parametrize("charset", ["ISO-8859-1", "hex", "utf-16"])
def test_what_switches_off_a_mail_is_read_as_what_it_is(charset: str) -> None:
    kind = f"application/x-www-form-urlencoded; charset={charset}"
    body = b"List-Unsubscribe=One-Click"
    request = RequestFactory().generic("POST", "/preferences/mail/x", body, content_type=kind)

    answer = only_utf8(lambda request: HttpResponse(request.POST["List-Unsubscribe"]))

    assert answer(request).content == b"One-Click"


def test_no_answer_is_a_blank_page() -> None:
    answer = Client().post("/healthz")
    assert answer.status_code == 405
    assert answer.text == "This address answers GET, HEAD only.\n"
    # A server breaks the connection over an answer that is longer than it says.
    assert int(answer["Content-Length"]) == len(answer.content)
