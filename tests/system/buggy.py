"""The Forward receiver with a bug: a task of the service that ends."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Final

from headrace_common.__main__ import main
from headrace_common.service.parts import Parts, Runtime
from headrace_forward import protocol
from headrace_forward.protocol import PROTOCOL
from headrace_forward.session import ForwardSession
from headrace_forward.settings import ForwardSettings

DEADLY: Final = b"here is what ends a task"


async def fails() -> None:
    raise RuntimeError("a bug")


def build(runtime: Runtime[ForwardSettings]) -> Parts:
    receive = ForwardSession.receive

    def failing(self: ForwardSession, data: bytes, now_ms: int) -> None:
        if DEADLY in data:
            runtime.tasks.start(fails(), "a task")
        receive(self, data, now_ms)

    ForwardSession.receive = failing  # type: ignore[method-assign]
    return PROTOCOL.build(runtime)


if __name__ == "__main__":
    protocol.PROTOCOL = replace(PROTOCOL, build=build)  # type: ignore[misc]
    sys.argv[1:] = ["forward"]
    main()
