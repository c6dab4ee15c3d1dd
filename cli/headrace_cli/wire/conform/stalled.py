"""Probes for which the server's storage stands still."""

from __future__ import annotations

import time
from itertools import pairwise

from headrace_common.session.client import Answer
from headrace_lumberjack.client import LumberjackClient
from headrace_lumberjack.wire import V1

from headrace_cli.wire.conform.bench import Bench, Finding, Verdict
from headrace_cli.wire.conform.sound import milliseconds
from headrace_cli.wire.line import Line, outcome


async def before_storage(bench: Bench) -> Finding:
    """A frame that is acknowledged; then, while the storage stands still, another."""
    async with bench.line() as line:
        return await _held(bench, line)


async def version_one(bench: Bench) -> Finding:
    """The same in version 1, whose clients take any reply as success for the whole window."""
    async with bench.line(LumberjackClient(version=V1)) as line:
        found = await _held(bench, line)
        counts = found.figures.get("while_held", ())
    if found.verdict is Verdict.KEPT and counts:
        said = f"sends {len(counts)} keep-alives while the storage stands still: a client of version 1 takes them as success"
        return Finding(Verdict.BROKEN, said, found.figures)
    return found


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


async def _held(bench: Bench, line: Line) -> Finding:
    """What a connection hears while the storage stands still, and after that."""
    assert bench.storage is not None
    await line.send(line.client.frame(bench.events(10)), bench.wait)
    if not await line.acknowledged(0, bench.wait):
        return Finding(Verdict.BROKEN, f"{outcome(line)} before the storage stands still")
    async with bench.storage.held():
        begun = time.monotonic()
        await line.send(line.client.frame(bench.events(100)), bench.wait)
        await line.until(lambda: any(each.frame == 1 and each.count for _, each in line.answers), bench.silence)
        heard = [(at - begun, answer) for at, answer in line.answers if answer.frame == 1]
    released = time.monotonic()
    figures = {"while_held": [[round(at, 3), answer.count] for at, answer in heard]}
    early = next(((at, answer) for at, answer in heard if answer.count), None)
    if early is not None:
        at, answer = early
        said = "" if answer.whole else f"{answer.count} of {answer.size} events "
        return Finding(
            Verdict.BROKEN, f"acknowledges {said}before it stores: after {milliseconds(at)}, while the storage stands still",
            figures,
        )  # fmt: skip
    told = f"waits{_kept_alive(heard)}"
    if line.over:
        return Finding(Verdict.NOTED, f"{outcome(line, 1)} while the storage stands still", figures)
    if await line.acknowledged(1, bench.wait):
        after = (line.whole_at(1) or released) - released
        return Finding(
            Verdict.KEPT, f"{told}, and acknowledges {milliseconds(max(after, 0))} after it goes on", figures
        )
    return Finding(Verdict.BROKEN, f"{told}, and then {outcome(line, 1)} for {bench.wait:g} s", figures)


def _kept_alive(heard: list[tuple[float, Answer]]) -> str:
    if not heard:
        return " without a word"
    if len(heard) == 1:
        return f" with a keep-alive after {heard[0][0]:.1f} s"
    gaps = [later - earlier for earlier, later in pairwise([0.0, *(at for at, _ in heard)])]
    return f" with {len(heard)} keep-alives, at most {max(gaps):.1f} s apart"
