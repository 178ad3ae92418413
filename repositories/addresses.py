"""Which network addresses an import may connect to."""

import ipaddress
import socket
from collections.abc import Sequence

from django.conf import settings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# `is_global` calls these global, or did in a Python that Forge still runs on; each leads to
# machines that the internet does not: carrier NAT, a cloud's own service address, relays and
# translations that carry an IPv4 address inside, documentation, segment routing, old site-local.
_NEVER = tuple(
    ipaddress.ip_network(network)
    for network in (
        *("0.0.0.0/8", "100.64.0.0/10", "168.63.129.16/32", "192.0.0.0/24", "192.88.99.0/24"),
        *("198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4"),
        *("::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32"),
        *("2002::/16", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8"),
    )
)


def is_allowed(address: Address) -> bool:
    """Whether imports may connect there: the public internet, and what the operator named."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    if any(address in network for network in settings.FORGE_IMPORT_ALLOWED_NETWORKS):
        return True
    return address.is_global and not any(address in network for network in _NEVER)


def resolve(host: str, *, port: int) -> Sequence[Address]:
    """Every address of a host, in the order to try them; raises OSError when there is none."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # A dictionary keeps the resolver's order, which knows what this machine can reach.
    return list(dict.fromkeys(ipaddress.ip_address(entry[4][0]) for entry in found))
