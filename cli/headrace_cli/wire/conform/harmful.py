"""Probes that send what no client should, and what breaks off."""

from __future__ import annotations

from headrace_lumberjack.client import LumberjackClient

from headrace_cli.verbs.console import format_size
from headrace_cli.wire.conform.bench import Bench, Finding, Verdict
from headrace_cli.wire.line import Line, outcome


async def late_byte(bench: Bench) -> Finding:
    """A frame without its last byte, and that byte after a pause."""
    async with bench.line() as line:
        data = line.client.frame(bench.events(10))
        await line.send(data[:-1], bench.wait)
        await line.acknowledged(0, bench.silence / 4)
        if any(answer.whole for _, answer in line.answers) or line.fault:
            return Finding(Verdict.BROKEN, f"{outcome(line)} before its last byte is sent")
        if line.ended:
            return Finding(Verdict.NOTED, f"{line.ended} the connection of a client that pauses inside a frame")
        await line.send(data[-1:], bench.wait)
        if await line.acknowledged(0, bench.wait):
            return Finding(Verdict.KEPT, "waits for the last byte, then acknowledges")
        return Finding(Verdict.BROKEN, f"{outcome(line)} when the frame is complete")


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
        return await _after_bad(bench, line, data, "those bytes")


async def unknown(bench: Bench) -> Finding:
    """The same with a message of a kind or version that nobody knows."""
    async with bench.line() as line:
        data = line.client.frame(bench.events(10)) + line.client.unknown + line.client.frame(bench.events(10))
        found = await _after_bad(bench, line, data, line.client.unknown_is)
        remarks = sorted({remark.text for _, remark in line.remarks} - {"VERS"})
    return Finding(found.verdict, found.answer + (f"; says {', '.join(remarks)}" if remarks else ""), found.figures)


async def _after_bad(bench: Bench, line: Line, data: bytes, what: str) -> Finding:
    await line.send(data, bench.wait)
    await line.acknowledged(1, bench.wait)
    before = "acknowledges the frame before it" if line.whole(0) else "acknowledges not even the frame before it"
    figures = {"before": line.whole(0), "after": line.whole(1), "closed": bool(line.ended)}
    if line.fault:
        return Finding(Verdict.BROKEN, outcome(line), figures)
    if line.whole(1):
        return Finding(Verdict.NOTED, f"skips {what}: {before} and the frame after it", figures)
    if line.ended:
        return Finding(Verdict.KEPT if line.whole(0) else Verdict.NOTED, f"{line.ended}; {before}", figures)
    return Finding(Verdict.NOTED, f"{before}, and then nothing: the client waits", figures)


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
    verdict = Verdict.BROKEN if line.fault else Verdict.NOTED
    return Finding(verdict, f"{said} ({sizes})", {"bytes": len(data), "inflated": bench.inflated})


async def overfull(bench: Bench) -> Finding:
    """A window of five events whose compressed frame has ten."""
    async with bench.line() as line:
        assert isinstance(line.client, LumberjackClient)
        await line.send(line.client.overfull([line.client.document(event) for event in bench.events(10)]), bench.wait)
        await line.until(lambda: bool(line.answers), bench.wait)
        if line.whole(0):
            return Finding(Verdict.NOTED, "acknowledges the five, and keeps silent about the others")
        return Finding(Verdict.BROKEN if line.fault else Verdict.KEPT, outcome(line))


async def no_frame(bench: Bench) -> Finding:
    """Three connections that are closed before they say anything."""
    for _ in range(3):
        async with bench.line():
            pass
    return Finding(Verdict.KEPT, "minds them not")
