"""The dialect of a protocol that is installed and has no adapter here: its own client says all that the suite needs.

Its events are JSON objects, and its transport is TCP.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pkgutil import resolve_name
from typing import Any

from headrace_common.protocol import Protocol, installed
from headrace_common.session.client import Client

from tests.contract.dialect import Dialect


class InstalledDialect(Dialect):
    """See `contract.dialect.Dialect`."""

    def __init__(self, protocol: Protocol[Any], client: type[Client]) -> None:
        self.name, self.malformed = protocol.name, client.malformed
        self.client = client

    def stream(self, record_headers: Mapping[str, bytes]) -> None:
        assert record_headers["ce_type"] == f"headrace.{self.name}.event".encode()


def without_adapter(known: Iterable[Dialect]) -> Iterator[Dialect]:
    """The dialects of the protocols that have none in `known`."""
    names = {dialect.name for dialect in known}
    for protocol in installed():
        if protocol.name not in names and protocol.client:
            yield InstalledDialect(protocol, resolve_name(protocol.client))
