"""A first look at the source before git runs: is it a Git repository, and at which address?

Redirects are followed here, each hop checked like the first, so that git itself needs to follow
none and connects to nothing but the addresses that were checked.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from repositories.addresses import Address, is_allowed, resolve
from repositories.failures import ImportFailed, status_failure
from repositories.git import SILENCE_SECONDS, pin
from repositories.pinned_http import ask
from repositories.sources import check_source

MAX_HOPS = 5
MAX_ADDRESSES = 4
CONNECT_SECONDS = 10.0
READ_SECONDS = 20.0
SECONDS_BETWEEN_WORDS = 0.25
SUFFIX = "/info/refs?service=git-upload-pack"
ADVERTISEMENT = "application/x-git-upload-pack-advertisement"


@dataclass(frozen=True)
class Found:
    """A source that answers as Git does: its final URL, and the pins that make git go there."""

    url: str
    pins: tuple[str, ...]


@dataclass(frozen=True)
class Patience:
    """How many seconds a server gets: to take a connection, to answer, to be silent in between."""

    connect: float = CONNECT_SECONDS
    read: float = READ_SECONDS
    silence: float = SILENCE_SECONDS

    @property
    def seconds(self) -> tuple[float, float]:
        return self.connect, self.read

    @property
    def total(self) -> float:
        """The end of all patience with one hop."""
        return MAX_ADDRESSES * self.connect + 2 * self.read


USUAL_PATIENCE = Patience()


def find(url: str, *, patience: Patience, on_wait: Callable[[], None]) -> Found:
    """Follow `url` to the repository; raises ImportFailed with the reason why it is none.

    `on_wait` is called a few times a second, however silent the server is, and may raise to stop.
    """
    for _hop in range(MAX_HOPS + 1):
        addresses, target = _heard(partial(_step, url, patience), patience, on_wait)
        if target is None:
            return Found(url, _pins(url, addresses))
        url = _next(url, target)
    raise ImportFailed(_("The server redirects too many times."), permanent=True, code="redirected")


def _heard[Answer](
    ask: Callable[[], Answer], patience: Patience, on_wait: Callable[[], None]
) -> Answer:
    """Ask in a thread of its own, so that a stop is heard and a trickle of bytes has an end."""
    answer: Future[Answer] = Future()
    threading.Thread(target=_settle, args=(answer, ask), daemon=True).start()
    deadline = time.monotonic() + patience.total
    while not answer.done():
        on_wait()
        if time.monotonic() > deadline:
            raise _too_late()
        wait([answer], SECONDS_BETWEEN_WORDS)
    return answer.result()


def _settle[Answer](answer: Future[Answer], ask: Callable[[], Answer]) -> None:
    try:
        answer.set_result(ask())
    except BaseException as error:
        answer.set_exception(error)


def _step(url: str, patience: Patience) -> tuple[list[Address], str | None]:
    """The addresses of one hop, and where it redirects to; None when it is the repository."""
    addresses = checked_addresses(url)
    return addresses, _look(url, addresses, patience=patience)


def checked_addresses(url: str) -> list[Address]:
    """The addresses of the URL's host; one that is not allowed refuses them all."""
    host, port = _host_and_port(url)
    try:
        addresses = resolve(host, port=port)
    except (OSError, UnicodeError) as error:
        raise ImportFailed(
            _("The host of this address cannot be found."), permanent=False, code="unknown_host"
        ) from error
    if not addresses or not all(map(is_allowed, addresses)):
        raise ImportFailed(
            _("Forge does not import from this address. The administrator can allow its network."),
            permanent=True,
            code="address",
        )
    return list(addresses)


def _host_and_port(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def _pins(url: str, addresses: list[Address]) -> tuple[str, ...]:
    host, port = _host_and_port(url)
    # A host that is written as an address needs no pin, and curl has no way to write one for IPv6.
    return () if host == str(addresses[0]) else (pin(host, port, addresses),)


def _next(url: str, target: str) -> str:
    """The repository's URL after a redirect, checked like the first one."""
    if not target.endswith(SUFFIX):
        raise not_git()
    if url.startswith("https:") and not target.startswith("https:"):
        raise ImportFailed(
            _("The server redirects from https to http."), permanent=True, code="redirected"
        )
    try:
        return check_source(target.removesuffix(SUFFIX))
    except ValidationError as refused:
        reason = _("The server redirects to an address that is not allowed: %(why)s")
        raise ImportFailed(
            reason % {"why": " ".join(refused.messages)}, permanent=True, code="redirected"
        ) from refused


def _look(url: str, addresses: list[Address], *, patience: Patience) -> str | None:
    """Ask as git would: None when the answer is git's, a URL when it is a redirect."""
    with _answer(url, addresses, patience=patience) as response:
        if response.is_redirect:
            return urljoin(url + SUFFIX, response.headers["Location"])
        if response.status_code != requests.codes.ok:
            raise status_failure(response.status_code)
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != ADVERTISEMENT or not _speaks_git(response):
            raise not_git()
        return None


def _speaks_git(response: requests.Response) -> bool:
    try:
        start: bytes = response.raw.read(26)
    except (OSError, urllib3.exceptions.HTTPError) as error:
        raise _lost(error) from error
    return start[4:].startswith((b"# service=git-upload-p", b"version 2"))


def _answer(url: str, addresses: list[Address], *, patience: Patience) -> requests.Response:
    """The first answer that one of the addresses gives; the body is not read yet."""
    *others, last = addresses[:MAX_ADDRESSES]
    for address in others:
        try:
            return ask(url + SUFFIX, address, seconds=patience.seconds)
        except requests.ConnectionError:
            # A machine without IPv6 often has a name's IPv6 address first.
            continue
        except requests.RequestException as error:
            raise _lost(error) from error
    try:
        return ask(url + SUFFIX, last, seconds=patience.seconds)
    except requests.RequestException as error:
        raise _lost(error) from error


def not_git() -> ImportFailed:
    return ImportFailed(
        _("There is no Git repository at this address."), permanent=True, code="not_git"
    )


def _lost(error: Exception) -> ImportFailed:
    """A fault of the network, in words that do not tell closed ports from silent ones."""
    if isinstance(error, requests.exceptions.SSLError):
        return ImportFailed(
            _("The server's certificate is not trusted."),
            permanent=True,
            code="certificate",
            detail=str(error),
        )
    if isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError):
        return _too_late()
    return ImportFailed(
        _("The connection to the server was lost."),
        permanent=False,
        code="connection_lost",
        detail=type(error).__name__,
    )


def _too_late() -> ImportFailed:
    return ImportFailed(_("The server did not answer in time."), permanent=False, code="timeout")
