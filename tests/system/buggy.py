"""The Forward receiver with a bug: a session that gets these bytes fails as no session may."""

from __future__ import annotations

from typing import Final

from headrace_forward.protocol import PROTOCOL
from headrace_forward.session import ForwardSession

BUG: Final = b"here is the bug"

if __name__ == "__main__":
    from headrace_common.protocol import run

    receive = ForwardSession.receive

    def failing(self: ForwardSession, data: bytes, now_ms: int) -> None:
        if BUG in data:
            raise ZeroDivisionError
        receive(self, data, now_ms)

    ForwardSession.receive = failing  # type: ignore[method-assign]
    run(PROTOCOL)
