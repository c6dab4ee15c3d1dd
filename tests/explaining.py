"""A receiver of any protocol of streams, which stores at once, for servers that tests play."""

from __future__ import annotations

from headrace_cli.verbs.explain import heard, session_of
from headrace_common.operations.errors import ProtocolError

from tests.segment.instant import InstantStore


class Receiver:
    """A session with the default settings. `stored` and `rejected`: parts of the last input; `over`: it takes no more."""

    def __init__(self, protocol: str) -> None:
        self.session = session_of(protocol)
        self.stored: list[bytes] = []
        self.rejected = 0
        self.over = False
        self._store = InstantStore()

    def feed(self, data: bytes, now_ms: int) -> bytes:
        """Returns its answers."""
        self.stored, self.rejected, said = [], 0, b""
        try:
            for kind, value in heard(self.session, data, now_ms):
                if kind == "question":
                    self.session.answered(value.ticket, self._store.answer(value))
                elif kind == "answer":
                    said += value
                else:
                    self.rejected += kind == "quarantine"
                    self.stored += [value] if kind == "event" else []
        except ProtocolError:
            self.over = True
        return said
