"""The probes: they send what any client may send, also while the storage is stalled, and what none should send."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Final

from headrace_cli.console import duration, format_size
from headrace_cli.wire.target import ASKED
from headrace_common.session.client import Answer
from headrace_lumberjack.client import LumberjackClient
from headrace_lumberjack.wire import V1

from headrace_conform.bench import EVERY, Bench, Finding, Line, Probe, Verdict, outcome

IN_FLIGHT: Final = 8
STEP: Final = 4
FIRST: Final = 64 << 10


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
            times.append((line.whole(frame) or 0.0) - begun)
        return Finding(Verdict.KEPT, f"acknowledges after {' and '.join(map(duration, times))}")


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


async def large_frame(bench: Bench) -> Finding:
    """Frames of events of 1 KiB, from 64 KiB on, each four times as large, until one is refused."""
    taken, size = 0, FIRST
    while True:
        size = min(size, bench.largest)
        async with bench.line() as line:
            line.client.compression = ""
            await line.send(line.client.frame(bench.events(size // 1024, 900)), bench.wait)
            if not await line.acknowledged(0, bench.wait):
                said = f"takes {format_size(taken)}" if taken else "takes none"
                return Finding(Verdict.NOTED, f"{said}; at {format_size(size)} it {outcome(line)}")
        taken = size
        if size == bench.largest:
            return Finding(Verdict.KEPT, f"takes {format_size(taken)}, the bound of this run")
        size *= STEP


async def before_storage(bench: Bench) -> Finding:
    """A frame that is acknowledged; then, while the storage stands still, another."""
    async with bench.line() as line:
        return await _held(bench, line)


async def version_one(bench: Bench) -> Finding:
    """The same in version 1, whose clients take any reply as success for the whole window."""
    async with bench.line(LumberjackClient(version=V1)) as line:
        return await _held(bench, line, any_word="a client of version 1 takes it as success")


async def half_closed(bench: Bench) -> Finding:
    """A frame and the end of the client's side, while the storage stands still."""
    assert bench.storage is not None
    async with bench.line() as line:
        async with bench.storage.held():
            await line.send(line.client.frame(bench.events(10)), bench.wait)
            line.finish()
            await line.acknowledged(0, bench.silence)
            early, ended = line.whole(0), line.ended
        if early or line.fault:
            return Finding(Verdict.BROKEN, f"{outcome(line)} while the storage stands still")
        if ended:
            return Finding(Verdict.NOTED, f"{ended} at once: the client sends it again")
        if await line.acknowledged(0, bench.wait):
            return Finding(Verdict.KEPT, "keeps the connection, and acknowledges when it has stored")
        return Finding(Verdict.NOTED, f"{outcome(line)} when the storage goes on")


async def gone(bench: Bench) -> Finding:
    """A frame from a client that resets the connection while the storage stands still."""
    assert bench.storage is not None
    async with bench.storage.held(), bench.line() as line:
        await line.send(line.client.frame(bench.events(10)), bench.wait)
        await line.acknowledged(0, bench.silence / 4)
        early = line.whole(0)
    if early:
        return Finding(Verdict.BROKEN, "acknowledges it while the storage stands still")
    return Finding(Verdict.KEPT, "minds it not")


async def _held(bench: Bench, line: Line, any_word: str = "") -> Finding:
    """Report what a connection hears while the storage is stopped, and after that. `any_word`: why it must hear none."""
    assert bench.storage is not None
    await line.send(line.client.frame(bench.events(10)), bench.wait)
    if not await line.acknowledged(0, bench.wait):
        return Finding(Verdict.BROKEN, f"{outcome(line)} before the storage stands still")
    async with bench.storage.held():
        begun = time.monotonic()
        await line.send(line.client.frame(bench.events(100)), bench.wait)
        await line.until(lambda: any(each.frame == 1 and each.count for _, each in line.answers), bench.silence)
        heard = [(at - begun, answer) for at, answer in line.answers if answer.frame == 1]
        fault = line.fault
    released = time.monotonic()
    for at, answer in heard:
        if answer.count:
            part = "" if answer.whole else f"{answer.count} of {answer.size} events "
            when = f"after {duration(at)}, while the storage stands still"
            return Finding(Verdict.BROKEN, f"acknowledges {part}before it stores: {when}")
    if any_word and (heard or fault):
        return Finding(Verdict.BROKEN, f"speaks while the storage stands still: {any_word}")
    if line.over:
        return Finding(Verdict.NOTED, f"{outcome(line, 1)} while the storage stands still")
    if await line.acknowledged(1, bench.wait):
        after = duration(max((line.whole(1) or released) - released, 0))
        return Finding(Verdict.KEPT, f"waits{_kept_alive(heard)}, and acknowledges {after} after it goes on")
    return Finding(Verdict.BROKEN, f"waits{_kept_alive(heard)}, and then {outcome(line, 1)} for {bench.wait:g} s")


def _kept_alive(heard: list[tuple[float, Answer]]) -> str:
    if not heard:
        return " without a word"
    if len(heard) == 1:
        return f" with a keep-alive after {heard[0][0]:.1f} s"
    gaps = [later - earlier for earlier, later in pairwise([0.0, *(at for at, _ in heard)])]
    return f" with {len(heard)} keep-alives, at most {max(gaps):.1f} s apart"


async def half_frame(bench: Bench) -> Finding:
    """A whole frame and half of another, and the end of the client's side."""
    async with bench.line() as line:
        whole = line.client.frame(bench.events(10))
        half = line.client.frame(bench.events(10))
        await line.send(whole + half[: len(half) // 2], bench.wait)
        line.finish()
        await line.acknowledged(1, bench.wait)
        if line.whole(1) or line.fault:
            return Finding(Verdict.BROKEN, f"of half a frame: {outcome(line, 1)}")
        first = "acknowledges the whole frame before it" if line.whole(0) else "acknowledges neither"
        return Finding(
            Verdict.KEPT if line.whole(0) else Verdict.NOTED,
            f"{first}, and {f'{line.ended} the connection' if line.ended else 'stays open'}",
        )


async def malformed(bench: Bench) -> Finding:
    """A whole frame, bytes with which no frame begins, and another whole frame."""
    async with bench.line() as line:
        data = line.client.frame(bench.events(10)) + line.client.malformed + line.client.frame(bench.events(10))
        await line.send(data, bench.wait)
        await line.acknowledged(1, bench.wait)
    before = "acknowledges the frame before it" if line.whole(0) else "acknowledges not even the frame before it"
    if line.fault:
        return Finding(Verdict.BROKEN, outcome(line))
    if line.whole(1):
        return Finding(Verdict.NOTED, f"skips those bytes: {before} and the frame after it")
    if line.ended:
        return Finding(Verdict.KEPT if line.whole(0) else Verdict.NOTED, f"{line.ended}; {before}")
    return Finding(Verdict.NOTED, f"{before}, and then nothing: the client waits")


async def faulty(bench: Bench) -> Finding:
    """A sound frame in which one event of eleven is not understood."""
    async with bench.line() as line:
        await line.send(line.client.faulty(bench.events(10)), bench.wait)
        await line.acknowledged(0, bench.wait)
        said = outcome(line)
    if line.fault:
        return Finding(Verdict.BROKEN, said)
    if line.whole(0):
        return Finding(Verdict.NOTED, f"{said}: whether the event is kept anywhere shows only in the storage")
    return Finding(Verdict.NOTED, f"{said}: a client sends it again for ever")


async def bomb(bench: Bench) -> Finding:
    """A sound compressed frame that inflates a thousandfold, up to the bound."""
    async with bench.line() as line:
        data = line.client.bomb(bench.inflated)
        await line.send(data, bench.wait)
        await line.acknowledged(0, bench.wait)
        said = outcome(line)
    sizes = f"{format_size(len(data))} that inflate to {format_size(bench.inflated)}"
    return Finding(Verdict.BROKEN if line.fault else Verdict.NOTED, f"{said} ({sizes})")


async def no_frame(bench: Bench) -> Finding:
    """Three connections that are closed before they say anything."""
    for _ in range(3):
        async with bench.line():
            pass
    return Finding(Verdict.KEPT, "minds them not")


_LUMBERJACK: Final = frozenset({"lumberjack"})
_FRAMED: Final = EVERY - {"relp"}
"""RELP knows no frame of several events and no compression, and any bytes are a message of it."""
PROBES: Final = (
    Probe("acknowledges", "How soon does it acknowledge?", acknowledges),
    Probe("before-storage", "Does it acknowledge before it stores?", before_storage, held=True),
    Probe("version-1", "Does it keep clients of version 1 alive?", version_one, _LUMBERJACK, held=True),
    Probe("half-closed", "Does a client that has finished sending still hear?", half_closed, held=True),
    Probe("gone", "What if the client goes away with a frame in flight?", gone, held=True, risky=True),
    Probe("in-flight", "Does it take several frames at once?", in_flight),
    Probe("resend", "Does it acknowledge what it has already?", resend),
    Probe("large-frame", "How large may a frame be?", large_frame, _FRAMED, risky=True),
    Probe("half-frame", "What does half a frame do?", half_frame, risky=True),
    Probe("malformed", "What do bytes do with which no frame begins?", malformed, risky=True),
    Probe("bad-event", "What does one event do that is not understood?", faulty, _FRAMED, risky=True),
    Probe("no-frame", "What do connections do that say nothing?", no_frame, risky=True),
    Probe("bomb", "What does a compressed frame do that inflates a thousandfold?", bomb, _FRAMED, risky=True),
)
"""Each is asked of servers of its `protocols`. The bomb is the last: a server that breaks by it stays broken."""
