"""The PROXY protocol, versions 1 and 2: how a balancer says whose connection it passes on. Pure.

Facts: HAProxy's specification, "The PROXY protocol, versions 1 & 2" (proxy-protocol.txt). The header stands before anything
else, TLS included. It can claim any address, so it is believed from trusted neighbours only.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

from headrace_common.errors import ProtocolError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

SIGNATURE_V2: Final = b"\r\n\r\n\0\r\nQUIT\n"
V1: Final = b"PROXY "
V1_LONGEST: Final = 107
"""Bytes of a version 1 header with its line end, at most (section 2.1)."""

V2_LONGEST: Final = 4096
"""Bytes that may follow the first 16 of version 2. The protocol could announce 64 KiB; balancers send some hundred."""

FIRST: Final = len(SIGNATURE_V2)
"""Bytes with which both versions begin; the shortest header is longer."""


class Client(NamedTuple):
    """Whose connection it is."""

    address: str
    port: int


def header() -> Generator[int, bytes, Client | None]:
    """Reads one header: yields how many bytes it needs next and is sent exactly those.

    The generator's value is the client, or None where the balancer speaks for itself (health checks) or for something that
    has no Internet address. Raises `ProtocolError` when there is no header.
    """
    first = yield FIRST
    if first == SIGNATURE_V2:
        return (yield from _version_2())
    if first.startswith(V1):
        return (yield from _version_1(first))
    raise ProtocolError("no PROXY protocol header from an address in LISTEN__TRUSTED_PROXIES", sample=first)


def _version_1(line: bytes) -> Generator[int, bytes, Client | None]:
    while not line.endswith(b"\r\n"):
        if len(line) >= V1_LONGEST:
            raise ProtocolError("a PROXY protocol header that does not end", sample=line)
        line += yield 1
    words = line[:-2].split(b" ")
    if words[1] == b"UNKNOWN":
        return None
    try:
        protocol, source, _, port, _ = (word.decode("ascii") for word in words[1:])
        address = ipaddress.ip_address(source)
        if protocol != f"TCP{address.version}" or not port.isdigit() or int(port) > 0xFFFF:
            raise ValueError
    except ValueError:
        raise ProtocolError("a PROXY protocol header that makes no sense", sample=line) from None
    return Client(plain(address), int(port))


def _version_2() -> Generator[int, bytes, Client | None]:
    version, family, length = struct.unpack(">BBH", (yield 4))
    if version >> 4 != 2 or version & 15 > 1 or length > V2_LONGEST:
        raise ProtocolError("a PROXY protocol header of an unknown kind", sample=bytes((version, family)))
    body = (yield length) if length else b""
    size = {0x11: 4, 0x21: 16}.get(family)
    if version & 15 == 0 or size is None:  # LOCAL: the balancer itself; or not TCP
        return None
    if length < 2 * size + 4:
        raise ProtocolError("a PROXY protocol header that is too short for its addresses", sample=body)
    return Client(plain(ipaddress.ip_address(body[:size])), int.from_bytes(body[2 * size : 2 * size + 2], "big"))


def networks(text: str) -> tuple[Network, ...]:
    """Addresses and CIDR networks, separated by commas or blanks. Raises ValueError naming what is neither."""
    return tuple(network(word) for word in text.replace(",", " ").split())


def network(word: str) -> Network:
    """One address or CIDR network; host bits may be set. Raises ValueError."""
    try:
        return ipaddress.ip_network(word, strict=False)
    except ValueError:
        raise ValueError(f"{word!r} is neither an address nor a network such as 10.0.0.0/8") from None


def within(address: str, among: Sequence[Network]) -> bool:
    """Whether `address` is in one of the networks; False for what is no address (a Unix socket's peer)."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(parsed in each for each in among)


def plain(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """An address as text; one of IPv4 that comes in IPv6 clothes (::ffff:192.0.2.1) as IPv4."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def normal(text: str) -> str:
    """What a socket says of its peer, as `plain` writes it, without an interface (``%eth0``)."""
    try:
        return plain(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        return text
