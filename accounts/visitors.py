"""Who asks, as far as a request shows it: the network, and words for the browser."""

import ipaddress

from django.http import HttpRequest

NOWHERE = "nowhere"
BROWSERS = {
    "Edg": "Edge",
    "OPR/": "Opera",
    "Firefox/": "Firefox",
    "FxiOS/": "Firefox",
    "CriOS/": "Chrome",
    "Chrome/": "Chrome",
    "Safari/": "Safari",
}
SYSTEMS = {
    "Windows": "Windows",
    "Android": "Android",
    "iPhone": "iOS",
    "iPad": "iOS",
    "Macintosh": "macOS",
    "CrOS": "ChromeOS",
    "Linux": "Linux",
}


def address_of(request: HttpRequest) -> str:
    """The address that the request came from, as the web server found it; "" where it knows none.

    Behind a reverse proxy this is the visitor's only with FORGE_TRUSTED_PROXIES.
    """
    address = _parsed(request.META.get("REMOTE_ADDR", ""))
    return str(address) if address else ""


def network_of(request: HttpRequest) -> str:
    """What one visitor can hardly change: an IPv4 address, or the /64 that an IPv6 one is in."""
    address = _parsed(request.META.get("REMOTE_ADDR", ""))
    if address is None:
        return NOWHERE
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((int(address), 64), strict=False))


def browser_of(request: HttpRequest) -> tuple[str, str]:
    """(browser, system), each a known name or "": never the visitor's own words."""
    told = request.META.get("HTTP_USER_AGENT", "")
    return _first(BROWSERS, told), _first(SYSTEMS, told)


def _first(names: dict[str, str], told: str) -> str:
    return next((name for mark, name in names.items() if mark in told), "")


def _parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address
