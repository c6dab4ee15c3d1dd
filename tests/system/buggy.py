"""The Forward receiver with a bug: a task of the service that ends."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from typing import Final

from headrace_common.__main__ import main
from headrace_common.service.parts import OwnParts, Parts, Runtime
from headrace_forward import protocol
from headrace_forward.protocol import PROTOCOL
from headrace_forward.session import ForwardSession
from headrace_forward.settings import ForwardSettings
from typing_extensions import override

DEADLY: Final = b"here is what ends a task"


class Task(OwnParts):
    def __init__(self, runtime: Runtime[ForwardSettings]) -> None:
        self._runtime = runtime
        self.ends = asyncio.Event()

    @override
    async def start(self) -> None:
        self._runtime.tasks.start(self._work(), "a task")

    @override
    async def stop(self) -> None:
        pass

    async def _work(self) -> None:
        await self.ends.wait()
        raise RuntimeError("a bug")


def build(runtime: Runtime[ForwardSettings]) -> Parts:
    receive, task = ForwardSession.receive, Task(runtime)

    def failing(self: ForwardSession, data: bytes, now_ms: int) -> None:
        if DEADLY in data:
            task.ends.set()
        receive(self, data, now_ms)

    ForwardSession.receive = failing  # type: ignore[method-assign]
    return replace(PROTOCOL.build(runtime), own=task)


if __name__ == "__main__":
    protocol.PROTOCOL = replace(PROTOCOL, build=build)  # type: ignore[misc]
    sys.argv[1:] = ["forward"]
    main()
