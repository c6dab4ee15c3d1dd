"""Lumberjack's bytes, as `explain` shows them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.explain import PEER, Explanation, Part, Unit, count, cut_text, fields
from headrace_common.session.inflate import InflateLimits

from headrace_lumberjack.content import Content
from headrace_lumberjack.session import LumberjackSession, wire_limits
from headrace_lumberjack.settings import LumberjackSection, LumberjackSettings
from headrace_lumberjack.wire import (
    DATA_HEADER,
    HEADER,
    V2,
    CompressedFrame,
    Cutter,
    FrameRun,
    LumberjackReplies,
    Window,
    WireLimits,
    pair_count,
)

_STREAM = 64


class LumberjackWalker:
    """See `Walker`. `most`: frames within a compressed one that are shown."""

    def __init__(self, limits: WireLimits, inflate: InflateLimits, most: int) -> None:
        self._limits = limits
        self._inflate = inflate
        self._most = most
        self._cutter = Cutter(limits)
        self._broken = False

    def feed(self, data: bytes) -> Iterator[Unit]:
        """See `Walker`."""
        if self._broken:
            return
        self._cutter.feed(data)
        try:
            while (item := self._cutter.cut()) is not None:
                if isinstance(item, Window):
                    yield Unit("W", item.offset, HEADER, _window_meaning(item), _window(item, item.offset))
                elif isinstance(item, CompressedFrame):
                    yield self._compressed(item)
                else:
                    for index in range(len(item)):
                        frame = item.frame(index)
                        yield Unit(
                            chr(frame[1]),
                            item.offset + item.begin(index) - item.start,
                            len(frame),
                            _data_meaning(frame),
                            _data(frame, item.offset + item.begin(index) - item.start),
                        )
            self._cutter.trim()
        except ProtocolError:
            self._broken = True

    def _compressed(self, item: CompressedFrame) -> Unit:
        size = HEADER + len(item.stream)
        parts = _header(item.version, "C", "frames, compressed", item.offset)
        head = len(item.stream).to_bytes(4, "big") + item.stream[:_STREAM]
        parts += fields(
            head, item.offset + 2, (4, f"{len(item.stream)} bytes of it follow"), (len(item.stream), "a zlib stream")
        )
        content = Content(item, self._limits, self._inflate)
        try:
            while not content.done:
                content.step()
        except ProtocolError as error:
            return Unit("C", item.offset, size, f"a compressed frame that cannot be opened: {error}", parts)
        frames = sum(len(each) if isinstance(each, FrameRun) else 1 for each in content.items)
        inner = list(self._inner(content))
        meaning = f"a compressed frame with {count(frames, 'frame')} in it"
        return Unit("C", item.offset, size, meaning, [*parts, *inner], frames - len(inner))

    def _inner(self, content: Content) -> Iterator[Part]:
        """Yields the first frames within, each as one part."""
        at = shown = 0
        for item in content.items:
            if isinstance(item, Window):
                if shown < self._most:
                    yield Part(at, HEADER, b"", f"W: {_window_meaning(item)}", inflated=True)
                shown += 1
                at += HEADER
                continue
            assert isinstance(item, FrameRun)
            for index in range(min(len(item), max(self._most - shown, 0))):
                frame = item.frame(index)
                yield Part(
                    item.begin(index), len(frame), frame[:DATA_HEADER], f"{chr(frame[1])}: {_data_meaning(frame)}", True
                )
            shown += len(item)
            at = item.ends[-1]


def _header(version: int, kind: str, meaning: str, offset: int) -> list[Part]:
    return fields(bytes((version, ord(kind))), offset, (1, f"version {chr(version)}"), (1, f"type {kind}: {meaning}"))


def _window_meaning(item: Window) -> str:
    return f"a window opens: {count(item.count, 'event')} will follow"


def _window(item: Window, offset: int) -> list[Part]:
    head = _header(item.version, "W", "the size of a window", offset)
    return [*head, *fields(item.count.to_bytes(4, "big"), offset + 2, (4, f"its size: {count(item.count, 'event')}"))]


def _data_meaning(frame: bytes) -> str:
    number = int.from_bytes(frame[2:6], "big")
    if frame[0] == V2:
        return f"event {number}, {len(frame) - DATA_HEADER} bytes of JSON"
    return f"event {number}, {count(pair_count(frame), 'pair')} of key and value"


def _data(frame: bytes, offset: int) -> list[Part]:
    number, length = (int.from_bytes(frame[at : at + 4], "big") for at in (2, 6))
    json = frame[0] == V2
    rest = frame[DATA_HEADER:]
    content = cut_text(rest[:_STREAM].decode(errors="replace")) if json else "its pairs, each text after its length"
    return fields(
        frame,
        offset,
        (1, f"version {chr(frame[0])}"),
        (1, f"type {chr(frame[1])}: an event"),
        (4, f"its number is {number}"),
        (4, f"{count(length, 'byte')} of JSON follow" if json else f"{count(length, 'pair')} follow"),
        (len(rest), content),
    )


def _stream(most: int, given: LumberjackSettings | None) -> tuple[LumberjackWalker, LumberjackSession]:
    limits, section = (given.limits, given.lumberjack) if given else (LimitSettings(), LumberjackSection())
    walker = LumberjackWalker(wire_limits(limits, section), InflateLimits(limits.inflated_bytes, limits.ratio), most)
    return walker, LumberjackSession(PEER, limits, section)


def _meaning(number: int) -> str:
    return f"all events up to number {number} are stored" if number else "0: nothing yet; the server is alive"


EXPLANATION: Final = Explanation(
    begins=lambda data: data[:1] in (b"1", b"2") and data[1:2] in (b"", b"W", b"D", b"J", b"C", b"A"),
    stream=_stream,
    replies=lambda: lambda data: [f"A {_meaning(number)}" for number in LumberjackReplies(data[0]).receive(data)],
)
