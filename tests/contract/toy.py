"""The toys' clients."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from headrace_common.record.contract import Reason
from headrace_common.session.client import Answer, KeyedClient, Remark

from tests.contract.dialect import EVERYTHING, Can, Conversation, Silent
from tests.contract.toys.wire import HEADER, Cutter, packed


class ToyClient(KeyedClient):
    """See `contract.toys.wire`."""

    forms = ("frame",)
    plain = "frame"

    def __init__(self) -> None:
        super().__init__()
        self._cutter = Cutter(1 << 20)

    def document(self, event: Mapping[str, Any]) -> bytes:
        return json.dumps(event).encode()

    def broken(self, event: Mapping[str, Any]) -> bytes:
        return json.dumps(f"no object, {event['mark']}").encode()

    def payload(self, documents: Sequence[bytes], form: str = "") -> bytes:
        name = uuid.uuid4().hex
        self._keyed(name, len(documents))
        return packed({"id": name, "events": [json.loads(each) for each in documents]})

    def again(self) -> bytes:
        self._cutter = Cutter(1 << 20)
        return b""

    def receive(self, data: bytes) -> list[Answer | Remark]:
        found: list[Answer | Remark] = []
        for body in self._cutter.feed(data):
            said = json.loads(body)
            assert len(said) == 1
            if "ack" in said:
                frame = self._frame_of(said["ack"])
                found.append(self._answer(frame, self._sizes[frame]))
            else:
                assert said == {"word": "by the way"}
        return found


class ToyConversation(Conversation):
    def measured(self, documents: Sequence[bytes]) -> int:
        return len(ToyClient().payload(documents))


class ToyDialect(Silent):
    """See `contract.dialect.Dialect`."""

    fault = Reason.BAD_RECORD
    malformed = (HEADER - 1).to_bytes(HEADER, "big")

    def __init__(self, name: str, module: str, can: Can) -> None:
        self.name, self.module, self.can = name, module, can

    def conversation(self) -> ToyConversation:
        return ToyConversation(ToyClient())

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
