"""Who is asking: the address that limits are counted under.

`X-Forwarded-For` is written by whoever sends it. It is believed only as far as trusted proxies
wrote it: read from the right, the first address that is no trusted proxy is the client.
"""

from collections.abc import Iterable, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

from watchword.handlers.errors import ConfigRefused

NOBODY = "unknown"
"""The key of a peer without an address (a Unix socket): they share one."""

_MAX_HOPS = 16
_MAX_ENTRY_CHARS = 64
_HOST_PREFIX = 64

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class Proxies:
    """The proxies whose word is taken."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        """Take networks such as `10.0.0.0/8`, or single addresses.

        Raises:
            ConfigRefused: some of them are neither; all are named.
        """
        found: list[Network] = []
        problems: list[str] = []
        for text in networks:
            try:
                found.append(ip_network(text, strict=False))
            except ValueError:
                problems.append(f"trusted proxy {text!r}: not a network or an address")
        if problems:
            raise ConfigRefused(problems)
        self._networks = tuple(found)

    def trusts(self, peer: str | None) -> bool:
        """Tell whether this peer is a trusted proxy."""
        address = None if peer is None else parse_address(peer)
        return address is not None and self._holds(address)

    def client(self, peer: str | None, forwarded: Sequence[str]) -> str:
        """Return the key of the client behind a peer: an IPv4 address, or the /64 of an IPv6 one.

        `forwarded` are the values of all `X-Forwarded-For` headers, in order. An entry that is no
        address ends the walk: then the proxy that passed it on is the client.
        """
        address = None if peer is None else parse_address(peer)
        if address is None:
            return NOBODY
        if forwarded and self._holds(address):
            entries = ",".join(forwarded).rsplit(",", _MAX_HOPS)
            for entry in reversed(entries):
                before = parse_address(entry.strip())
                if before is None:
                    break
                address = before
                if not self._holds(address):
                    break
        return key_of(address)

    def _holds(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def parse_address(text: str) -> Address | None:
    """Return the address of `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`, else None.

    An IPv4 address inside an IPv6 one (RFC 4291, 2.5.5.2) is the IPv4 address.
    """
    if len(text) > _MAX_ENTRY_CHARS:
        return None
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def key_of(address: Address) -> str:
    """Return what limits are counted under: whoever has one IPv6 address has its whole /64."""
    if isinstance(address, IPv4Address):
        return str(address)
    return str(IPv6Network((address, _HOST_PREFIX), strict=False))
