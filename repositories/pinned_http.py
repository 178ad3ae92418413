"""HTTP to an address that was checked, whatever the name of its host resolves to a moment later."""

from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter

from repositories.addresses import Address
from repositories.git_environment import certificates

_HEADERS = {
    "Accept": "*/*",
    "Accept-Encoding": "identity",
    "Git-Protocol": "version=2",
    # Forges answer git at addresses where they show browsers a page.
    "User-Agent": "git/2.40 (Forge)",
}


def ask(url: str, address: Address, *, seconds: tuple[float, float]) -> requests.Response:
    """GET from that address, as git would: no redirect is followed, the body is not read yet.

    `seconds` are those to connect and those between two signs of life. Raises as requests does.
    """
    with requests.Session() as session:
        # Neither a proxy nor a .netrc of the machine: the checked address, without a password.
        session.trust_env = False
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Pinned(address))
        return session.get(
            url,
            headers={**_HEADERS, "Host": urlsplit(url).netloc},
            timeout=seconds,
            allow_redirects=False,
            stream=True,
            verify=certificates(),
        )


class _Pinned(HTTPAdapter):
    """Connects to one address, whatever the URL's host; TLS still asks for that host's name."""

    def __init__(self, address: Address) -> None:
        self._address = str(address)
        super().__init__()

    def build_connection_pool_key_attributes(
        self, request: Any, verify: Any, cert: Any = None
    ) -> Any:
        host, keys = super().build_connection_pool_key_attributes(request, verify, cert)
        names: dict[str, Any] = {}
        if host["scheme"] == "https":
            names = {"server_hostname": host["host"], "assert_hostname": host["host"]}
        return {**host, "host": self._address}, {**keys, **names}
