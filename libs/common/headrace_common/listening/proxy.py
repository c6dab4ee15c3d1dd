"""The PROXY protocol, versions 1 and 2: how a balancer names the client whose connection it forwards. Pure.

Source: HAProxy's specification, "The PROXY protocol, versions 1 & 2" (proxy-protocol.txt). The header precedes everything
else, TLS included. It can claim any address, so only trusted neighbours are believed.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Generator
from typing import Final, NamedTuple

from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.networks import plain

SIGNATURE_V2: Final = b"\r\n\r\n\0\r\nQUIT\n"
V1: Final = b"PROXY "
V1_LONGEST: Final = 107
"""Maximum bytes of a version 1 header with its line end (section 2.1)."""

V2_LONGEST: Final = 4096
"""Maximum bytes after the first 16 of version 2. The protocol could announce 64 KiB; balancers send a few hundred."""

FIRST_BYTES: Final = len(SIGNATURE_V2)
"""Bytes that are read first in both versions; the shortest header is longer."""


class ProxiedClient(NamedTuple):
    """The client behind a connection."""

    address: str
    port: int


def header() -> Generator[int, bytes, ProxiedClient | None]:
    """Reads one header: yields how many bytes it needs next; send it exactly those.

    Returns the client, or None if the balancer speaks for itself (health checks) or for a peer without an Internet address.
    Raises `ProtocolError` if there is no header.
    """
    first = yield FIRST_BYTES
    if first == SIGNATURE_V2:
        return (yield from _version_2())
    if first.startswith(V1):
        return (yield from _version_1(first))
    raise ProtocolError("no PROXY protocol header from an address in LISTEN__TRUSTED_PROXIES")


def _version_1(line: bytes) -> Generator[int, bytes, ProxiedClient | None]:
    while not line.endswith(b"\r\n"):
        if len(line) >= V1_LONGEST:
            raise ProtocolError("a PROXY protocol header that does not end")
        line += yield 1
    words = line[:-2].split(b" ")
    if words[1] == b"UNKNOWN":
        return None
    try:
        protocol, source, _, port, _ = (word.decode("ascii") for word in words[1:])
        address = ipaddress.ip_address(source)
        if protocol != f"TCP{address.version}" or "%" in source or not port.isdigit() or int(port) > 0xFFFF:
            raise ValueError
    except ValueError:
        raise ProtocolError("a malformed PROXY protocol header") from None
    return ProxiedClient(plain(address), int(port))


def _version_2() -> Generator[int, bytes, ProxiedClient | None]:
    version, family, length = struct.unpack(">BBH", (yield 4))
    if version >> 4 != 2 or version & 15 > 1 or length > V2_LONGEST:
        raise ProtocolError("a PROXY protocol header of an unknown version or command, or too long")
    body = (yield length) if length else b""
    size = {0x11: 4, 0x21: 16}.get(family)
    if version & 15 == 0 or size is None:  # LOCAL: the balancer itself; or not TCP
        return None
    if length < 2 * size + 4:
        raise ProtocolError("a PROXY protocol header that is too short for its addresses")
    return ProxiedClient(plain(ipaddress.ip_address(body[:size])), int.from_bytes(body[2 * size : 2 * size + 2], "big"))
