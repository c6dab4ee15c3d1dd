"""Parses addresses and networks from settings, and tests whether an address is in one. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks(text: str) -> tuple[Network, ...]:
    """Parses addresses and CIDR networks, separated by commas or blanks. Raises ValueError that names the first bad word."""
    return tuple(network(word) for word in text.replace(",", " ").split())


def network(word: str) -> Network:
    """Parses one address or CIDR network; host bits may be set. Raises ValueError."""
    try:
        return ipaddress.ip_network(word, strict=False)
    except ValueError:
        raise ValueError(f"{word!r} is neither an address nor a network such as 10.0.0.0/8") from None


def within(address: str, among: Sequence[Network]) -> bool:
    """Whether `address` is in one of the networks; False if it is no address (a Unix socket's peer)."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(parsed in each for each in among)


def plain(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """An address as text; an IPv4-mapped IPv6 address (::ffff:192.0.2.1) as IPv4."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def normal(text: str) -> str:
    """The peer address that a socket reports, as `plain` writes it, without the interface (``%eth0``)."""
    try:
        return plain(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        return text
