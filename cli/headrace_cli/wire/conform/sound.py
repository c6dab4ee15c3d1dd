"""Probes that send what any client may send."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from headrace_forward.client import ForwardClient

from headrace_cli.verbs.console import format_size
from headrace_cli.wire.clients import ASKED
from headrace_cli.wire.conform.bench import Bench, Finding, Verdict
from headrace_cli.wire.line import outcome

IN_FLIGHT: Final = 8
STEP: Final = 4
FIRST: Final = 64 << 10


def milliseconds(seconds: float) -> str:
    """A short time for people."""
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


async def acknowledges(bench: Bench) -> Finding:
    """A frame of a hundred events, and another when the first is acknowledged."""
    async with bench.line() as line:
        times = []
        for frame in range(2):
            data = line.client.frame(bench.events(100))
            begun = time.monotonic()
            await line.send(data, bench.wait)
            if not await line.acknowledged(frame, bench.wait):
                return Finding(Verdict.BROKEN, f"{outcome(line, frame)} within {bench.wait:g} s")
            times.append((line.whole_at(frame) or 0.0) - begun)
        said = " and ".join(map(milliseconds, times))
        return Finding(Verdict.KEPT, f"acknowledges after {said}", {"seconds": times})


async def forms(bench: Bench) -> Finding:
    """Each form that a frame may have, over one connection, one after the other."""
    taken: list[str] = []
    refused: list[str] = []
    for form in ASKED[bench.target.protocol]().forms:
        async with bench.line() as line:
            await line.send(line.client.frame(bench.events(3), form), bench.wait)
            (taken if await line.acknowledged(0, bench.wait) else refused).append(form)
    if refused:
        return Finding(
            Verdict.NOTED, f"takes {', '.join(taken) or 'none'}; does not acknowledge {', '.join(refused)}",
            {"taken": taken, "refused": refused},
        )  # fmt: skip
    return Finding(Verdict.KEPT, f"takes {', '.join(taken)}", {"taken": taken, "refused": []})


async def empty_frame(bench: Bench) -> Finding:
    """A frame without events, and one with some."""
    async with bench.line() as line:
        await line.send(line.client.frame([]), bench.wait)
        heard = await line.acknowledged(0, bench.silence)
        await line.send(line.client.frame(bench.events(3)), bench.wait)
        after = await line.acknowledged(1, bench.wait)
        said = outcome(line)
    if heard and after:
        return Finding(Verdict.KEPT, "acknowledges it, and what follows")
    if after:
        return Finding(Verdict.NOTED, "says nothing to it, and acknowledges what follows")
    return Finding(Verdict.NOTED, f"{said}; what follows is not acknowledged")


async def in_flight(bench: Bench) -> Finding:
    """Eight frames at once."""
    async with bench.line() as line:
        await line.send(b"".join(line.client.frame(bench.events(10)) for _ in range(IN_FLIGHT)), bench.wait)
        await line.until(lambda: all(map(line.whole, range(IN_FLIGHT))), bench.wait)
        order = [answer.frame for _, answer in line.answers if answer.whole]
        missing = IN_FLIGHT - len(set(order))
        if line.fault or missing:
            verdict = Verdict.NOTED if line.ended and not line.fault else Verdict.BROKEN
            return Finding(verdict, f"acknowledges {IN_FLIGHT - missing} of {IN_FLIGHT}, and {outcome(line, -1)}")
    kept = order == sorted(order)
    return Finding(Verdict.KEPT, f"acknowledges all {IN_FLIGHT}, {'in order' if kept else 'not in order'}")


async def partial(bench: Bench) -> Finding:
    """A frame of ten thousand events."""
    async with bench.line() as line:
        await line.send(line.client.frame(bench.events(10_000)), bench.wait)
        whole = await line.acknowledged(0, bench.wait)
        counts = [answer.count for _, answer in line.answers]
    if not whole:
        return Finding(Verdict.NOTED, f"{outcome(line)} for a frame of 10,000 events")
    parts = [count for count in counts if 0 < count < 10_000]
    if parts != sorted(parts):
        return Finding(Verdict.BROKEN, f"takes back what it has acknowledged: {', '.join(map(str, counts[:10]))}")
    said = f"says {len(parts)} times how far it is" if parts else "acknowledges the whole frame at once"
    return Finding(Verdict.NOTED, said, {"parts": parts[:100]})


async def resend(bench: Bench) -> Finding:
    """The same bytes over two connections, as after a break."""
    client = ASKED[bench.target.protocol]()
    data = client.frame(bench.events(10))
    for first in (True, False):
        async with bench.line(client) as line:
            client.repeat(0)
            await line.send(data, bench.wait)
            if not await line.acknowledged(0, bench.wait):
                when = "when it is sent first" if first else ": a client sends it for ever"
                return Finding(Verdict.BROKEN, f"{outcome(line)} {when}")
    return Finding(Verdict.KEPT, "acknowledges it again; whether it is stored twice shows only in the storage")


async def half_close(bench: Bench) -> Finding:
    """A frame, and the end of the client's side."""
    async with bench.line() as line:
        await line.send(line.client.frame(bench.events(10)), bench.wait)
        line.finish()
        if await line.acknowledged(0, bench.wait):
            await line.silence(bench.silence / 4)
            return Finding(Verdict.KEPT, "acknowledges it" + (f", then {line.ended}" if line.ended else ", stays open"))
        return Finding(Verdict.NOTED, f"{outcome(line)}: the client sends it again")


async def large_frame(bench: Bench) -> Finding:
    """Frames of events of 1 KiB, from 64 KiB on, each four times as large, until one is refused."""
    return await _grow(bench, lambda size: (size // 1024, 900))


async def large_event(bench: Bench) -> Finding:
    """Frames of one event, from 64 KiB on, each four times as large, until one is refused."""
    return await _grow(bench, lambda size: (1, size))


async def _grow(bench: Bench, shape: Callable[[int], tuple[int, int]]) -> Finding:
    taken, size = 0, FIRST
    while True:
        size = min(size, bench.largest)
        async with bench.line() as line:
            await line.send(line.client.frame(bench.events(*shape(size)), line.client.plain), bench.wait)
            if not await line.acknowledged(0, bench.wait):
                figures = {"taken": taken, "refused": size}
                said = f"takes {format_size(taken)}" if taken else "takes none"
                return Finding(Verdict.NOTED, f"{said}; at {format_size(size)} it {outcome(line)}", figures)
        taken = size
        if size == bench.largest:
            return Finding(Verdict.KEPT, f"takes {format_size(taken)}, the bound of this run", {"taken": taken})
        size *= STEP


async def no_chunk(bench: Bench) -> Finding:
    """A message without a chunk, and one with it."""
    async with bench.line() as line:
        assert isinstance(line.client, ForwardClient)
        await line.send(line.client.unasking([line.client.document(event) for event in bench.events(3)]), bench.wait)
        await line.silence(bench.silence / 4)
        if line.over:
            return Finding(Verdict.NOTED, f"{outcome(line)}: a logger that asks for nothing loses what it writes next")
        await line.send(line.client.frame(bench.events(3)), bench.wait)
        if await line.acknowledged(0, bench.wait):
            return Finding(Verdict.KEPT, "says nothing to it, and acknowledges the next")
        return Finding(Verdict.BROKEN, f"{outcome(line)} to a message with a chunk that follows it")
