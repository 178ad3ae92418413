"""What a request shows of who sent it."""

import pytest
from django.test import RequestFactory

from accounts.visitors import address_of, browser_of, network_of

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0"
CHROME = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/156.0.0.0 Safari/537.36"
)
EDGE = f"{CHROME} Edg/156.0.0.0"
SAFARI = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 26_0 like Mac OS X) AppleWebKit/605.1.15 "
    "(KHTML, like Gecko) Version/26.0 Mobile/15E148 Safari/604.1"
)
PIXEL = (
    "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/156.0.0.0 Mobile Safari/537.36"
)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", "nowhere"),
        ("unix:", "nowhere"),
        ("' OR 1=1", "nowhere"),
    ],
)
def test_a_network_is_what_one_visitor_cannot_change_at_will(address: str, network: str) -> None:
    assert network_of(RequestFactory().get("/", REMOTE_ADDR=address)) == network


def test_what_is_no_address_is_not_repeated() -> None:
    assert address_of(RequestFactory().get("/", REMOTE_ADDR="<b>evil</b>")) == ""


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (FIREFOX, ("Firefox", "Linux")),
        (CHROME, ("Chrome", "Windows")),
        (EDGE, ("Edge", "Windows")),
        (SAFARI, ("Safari", "iOS")),
        (PIXEL, ("Chrome", "Android")),
        ("curl/8", ("", "")),
        ("Your account is locked, call +1 555 0100", ("", "")),
    ],
)
def test_a_browser_is_told_in_words_of_ours(told: str, words: tuple[str, str]) -> None:
    assert browser_of(RequestFactory().get("/", headers={"user-agent": told})) == words
