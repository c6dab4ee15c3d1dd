"""Counts connections by their clients' addresses, so that one address cannot take all places. Pure."""

from __future__ import annotations

import ipaddress
from typing import Final

LIMIT: Final = "LIMITS__CONNECTIONS_PER_ADDRESS"
"""The setting, as metrics and logs name it."""

_ONE_SITE: Final = 64
"""Bits of an IPv6 address that name a network: a site that has one address of it has them all."""


def counted_as(address: str) -> str:
    """Returns the unit in which an address is counted: an IPv4 address itself, an IPv6 address's /64, empty for what is none."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((parsed, _ONE_SITE), strict=False))


class Addresses:
    """Counts the open connections of each address: at most `most` of each, any number if that is 0. Empty without connections."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._open)

    def take(self, address: str) -> str | None:
        """Counts a connection. Returns what to give back when it ends, or None if the address has all that it may have."""
        name = counted_as(address) if self._most else ""
        return None if self._open.get(name, 0) >= self._most > 0 else self.exchange(address)

    def exchange(self, address: str) -> str:
        """Counts a connection for which another of its address is about to leave. Returns what to give back when it ends."""
        name = counted_as(address) if self._most else ""
        if name:
            self._open[name] = self._open.get(name, 0) + 1
        return name

    def give_back(self, taken: str) -> None:
        """Gives back the place of a connection that has ended. `taken`: what `take` returned for it."""
        if not taken:
            return
        self._open[taken] -= 1
        if not self._open[taken]:
            del self._open[taken]
