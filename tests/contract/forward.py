"""Fluentd Forward."""

from __future__ import annotations

from collections.abc import Sequence

import msgpack
import orjson
from headrace_common.record.contract import Reason
from headrace_forward.client import ForwardClient

from tests.contract.dialect import EVERYTHING, Conversation, Dialect


class ForwardConversation(Conversation):
    """PackedForward with chunks as fluentd makes them."""

    client: ForwardClient

    def __init__(self) -> None:
        super().__init__(ForwardClient())

    def packed(self, entries: bytes, **option: str) -> bytes:
        """The next frame, with any bytes as entries. Forward alone."""
        return self.client.packed(entries, 1, **option)

    def measured(self, documents: Sequence[bytes]) -> int:
        return len(ForwardClient().payload(documents))

    def weighed(self, document: bytes) -> int:
        """Of an event as it is stored: JSON, and the attribute that names its chunk."""
        _, record = msgpack.unpackb(document)
        return len(orjson.dumps(record)) + len(orjson.dumps({"chunk": "x" * 24}))


class ForwardDialect(Dialect):
    """See `contract.dialect.Dialect`."""

    name = "forward"
    module = "headrace_forward"
    can = EVERYTHING
    fault = Reason.BAD_RECORD
    malformed = b"GET / HTTP/1.1\r\n\r\n"

    def conversation(self) -> ForwardConversation:
        return ForwardConversation()


class PythonForwardDialect(ForwardDialect):
    """The same receiver, where the native core is not built."""

    variant = "core"
    module = "tests.forward.python"
