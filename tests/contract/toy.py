"""The toys' clients."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

from headrace_common.record.contract import Reason

from tests.contract.dialect import EVERYTHING, Can, Silent, Values
from tests.contract.toys.wire import HEADER, Cutter, packed


class ToyConversation:
    """See `contract.toys.wire`."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._cutter = Cutter(1 << 20)

    def _packed(self, events: list[Any]) -> bytes:
        return packed({"id": self._names[-1], "events": events})

    def frame(self, values: Values) -> bytes:
        self._names.append(uuid.uuid4().hex)
        return self._packed(list(values))

    def faulty(self, values: Values) -> bytes:
        self._names.append(uuid.uuid4().hex)
        events: list[Any] = list(values)
        events.insert(len(events) // 2, f"no object, {values[0]['mark']}")
        return self._packed(events)

    def sized(self, values: Values, size: int) -> bytes:
        self._names.append(uuid.uuid4().hex)
        events = [dict(value) for value in values]
        events[0]["pad"] = ""
        events[0]["pad"] = "x" * (size - len(self._packed(events)))
        return self._packed(events)

    def receive(self, data: bytes) -> list[int]:
        found = []
        for body in self._cutter.feed(data):
            said = json.loads(body)
            assert len(said) == 1
            if "ack" in said:
                found.append(self._names.index(said["ack"]))
            else:
                assert said == {"word": "by the way"}
        return found


class ToyDialect(Silent):
    """See `contract.dialect.Dialect`."""

    fault = Reason.BAD_RECORD
    malformed = (HEADER - 1).to_bytes(HEADER, "big")

    def __init__(self, name: str, module: str, can: Can) -> None:
        self.name, self.module, self.can = name, module, can

    def conversation(self) -> ToyConversation:
        return ToyConversation()

    def value(self, stored: dict[str, Any]) -> dict[str, Any]:
        return stored

    def stream(self, record_headers: Mapping[str, bytes]) -> None:
        assert record_headers["ce_subject"] == b"toy"


MESSAGES = ToyDialect(
    "logjam",
    "tests.contract.toys.messages",
    Can.SPLIT_BYTES | Can.REFUSE_ONE | Can.STORE_AGAIN | Can.REFUSE_NEW,
)
"""Whole messages with routing ids; the session never hears that a client has gone."""

QUESTIONS = ToyDialect("segment", "tests.contract.toys.questions", EVERYTHING)
"""A question before each frame, and an unasked word."""
