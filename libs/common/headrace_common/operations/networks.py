"""Parses addresses and networks from settings, and tests whether an address is in a network. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks(text: str) -> tuple[Network, ...]:
    """Parses addresses and CIDR networks, separated by commas or blanks. Host bits may be set. Raises ValueError that names the
    first bad word.
    """
    found = []
    for word in text.replace(",", " ").split():
        try:
            found.append(ipaddress.ip_network(word, strict=False))
        except ValueError:
            raise ValueError(f"{word!r} is neither an address nor a network such as 10.0.0.0/8") from None
    return tuple(found)


_BROKER = re.compile(r" *(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\],]+):([0-9]{1,5}) *")


def brokers(text: str) -> str:
    """Returns `text` if it is HOST:PORT, several separated by commas. Raises ValueError that names the first that is not."""
    for each in text.split(","):
        found = _BROKER.fullmatch(each)
        if found is None or not 0 < int(found[2]) < 65_536:
            raise ValueError(f"{each.strip()!r} is not HOST:PORT (an IPv6 address in brackets)")
        found[1].encode("idna")  # raises what the resolver would, later, and which is no OSError
    return text


Brokers = Annotated[str, AfterValidator(brokers)]


def token_url(url: str) -> str:
    """Returns `url` if it is empty, or one of HTTP without a user. Raises ValueError otherwise."""
    parts = urlsplit(url)
    if url and (parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None):
        raise ValueError("not a URL such as https://login.example.org/token, with no user in it")
    return url


TokenUrl = Annotated[str, AfterValidator(token_url)]


def within(address: str, among: Sequence[Network]) -> bool:
    """Returns whether `address` is in one of the networks; False if it is no address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(parsed in each for each in among)


def plain(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """Returns an address as text; an IPv4-mapped IPv6 address (::ffff:192.0.2.1) as IPv4."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def normal(text: str) -> str:
    """Returns the peer address that a socket reports, as `plain` writes it, without the interface (``%eth0``)."""
    try:
        return plain(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        return text
