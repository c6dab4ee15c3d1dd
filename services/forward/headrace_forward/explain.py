"""Forward's messages, in msgpack and in JSON, as `explain` shows them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import msgpack
from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.explain import PEER, SAMPLE, Explanation, Part, Unit, count, cut_text

from headrace_forward.entries import option
from headrace_forward.events.message import MAGICS
from headrace_forward.json_form.wire import FIRST, JsonDecoder, JsonMessage
from headrace_forward.kinds import MsgpackKind, content
from headrace_forward.session import PING_ELEMENTS, PINGS, ForwardSession
from headrace_forward.settings import ForwardSection, ForwardSettings
from headrace_forward.wire import EventTime, ForwardDecoder, ForwardMessage, ForwardReplies, new_unpacker

_READ: Final = 4096
"""Largest element that is decoded to be shown."""
_SECOND: Final = 1
_LOGIN: Final = ("PING: the client's login", "host name", "salt", "digest", "user", "digest of the password")


class ForwardWalker:
    """See `Walker`. The first byte decides the codec. `most`: entries of a message that are shown."""

    def __init__(self, frame_bytes: int, frame_events: int, most: int) -> None:
        self._frame_bytes = frame_bytes
        self._frame_events = frame_events
        self._most = most
        self._decoder: ForwardDecoder | JsonDecoder | None = None
        self._end = 0
        self._broken = False

    def feed(self, data: bytes) -> Iterator[Unit]:
        """See `Walker`."""
        if self._broken or not data:
            return
        if self._decoder is None:
            json = data[0] in FIRST
            self._decoder = (
                JsonDecoder(self._frame_bytes) if json else ForwardDecoder(self._frame_bytes, self._frame_events)
            )
        try:
            while True:
                for message in self._decoder.receive(data):
                    yield from self._between(message.offset)
                    self._end = message.offset + len(message.raw)
                    yield self._msgpack(message) if isinstance(message, ForwardMessage) else self._json(message)
                if not self._decoder.paused:
                    return
                data = b""
        except ProtocolError:
            self._broken = True

    def _between(self, offset: int) -> Iterator[Unit]:
        """Yields the heartbeats in front of a message, which the decoders skip."""
        size = offset - self._end
        if size:
            json = isinstance(self._decoder, JsonDecoder)
            meaning = "white space, or null: a heartbeat" if json else f"{count(size, 'heartbeat')}, nil each"
            yield Unit("heartbeat", self._end, size, meaning)

    def _msgpack(self, message: ForwardMessage) -> Unit:
        mode, names = _mode(message)
        login = names is _LOGIN
        parts = [Part(message.offset, message.start, message.raw[: message.start], f"an array of {len(message.ends)}")]
        begin = message.start
        for index, end in enumerate(message.ends):
            name = names[index] if index < len(names) else "more than the protocol has; ignored"
            sample, value = b"", ""
            if not login:
                sample = message.raw[begin : min(end, begin + SAMPLE)]
                value = _value(message.element(index), end - begin)
            parts.append(Part(message.offset + begin, end - begin, sample, f"{name}{value}"))
            begin = end
        if login:
            return Unit(mode, message.offset, len(message.raw), "a login; what it holds is not shown", parts)
        entries, left = self._entries(message)
        asked = option.read(message)
        wish = "asks for an acknowledgement" if asked.reply is not None else "asks for no acknowledgement"
        return Unit(mode, message.offset, len(message.raw), f"a message that {wish}", [*parts, *entries], left)

    def _entries(self, message: ForwardMessage) -> tuple[list[Part], int]:
        """Returns the first entries, and how many more a message in Forward mode has; of a packed one 0."""
        found: list[Part] = []
        if message.entries is not None:
            places = [place - message.base for place in message.entries[: self._most + 1]]
            for index, (begin, end) in enumerate(pairwise(places)):
                found.append(_entry(index, message.raw[begin:end], message.offset + begin))
            return found, message.count - len(found)
        if message.option_index != 2 or len(message.ends) < 2 or message.begins(1, MAGICS):
            return found, 0
        packed = bytes(message.content(1))
        base = message.offset + message.ends[1] - len(packed)
        unpacker = new_unpacker()
        unpacker.feed(packed)
        begin = 0
        try:
            while len(found) < self._most:
                unpacker.skip()
                found.append(_entry(len(found), packed[begin : unpacker.tell()], base + begin))
                begin = unpacker.tell()
        except (msgpack.UnpackException, ValueError):
            pass
        return found, 0

    def _json(self, message: JsonMessage) -> Unit:
        parts = []
        at = 0
        for index, element in enumerate(message.elements or ()):
            text = bytes(element)
            at = message.raw.find(text, at)
            name = "tag" if index == 0 else f"element {index + 1}"
            shown = cut_text(text[:_READ].decode(errors="replace"))
            parts.append(Part(message.offset + at, len(text), text[:SAMPLE], f"{name}: {shown}"))
            at += len(text)
        return Unit("JSON", message.offset, len(message.raw), f"a message of {count(len(parts), 'element')}", parts)


def _mode(message: ForwardMessage) -> tuple[str, tuple[str, ...]]:
    """Returns the message's mode, and what its elements are."""
    if _is_login(message):
        return "PING", _LOGIN
    kind = message.kind(_SECOND)
    if kind is MsgpackKind.ARRAY:
        return "Forward", ("tag", "entries", "option")
    if kind in (MsgpackKind.STR, MsgpackKind.BIN):
        compressed = message.begins(_SECOND, MAGICS)
        name = "entries, compressed" if compressed else "entries, packed"
        return "CompressedPackedForward" if compressed else "PackedForward", ("tag", name, "option")
    return "Message", ("tag", "time", "record", "option")


def _is_login(message: ForwardMessage) -> bool:
    return len(message.ends) == PING_ELEMENTS and message.element(0) in PINGS


def _entry(index: int, raw: bytes, offset: int) -> Part:
    return Part(offset, len(raw), raw[:SAMPLE], f"entry {index + 1}{_value(raw, len(raw))}")


def _value(raw: bytes, size: int) -> str:
    """Returns the value, if it is short."""
    if size > _READ:
        return f", {size:,} bytes"
    try:
        value = msgpack.unpackb(raw, raw=False, strict_map_key=False, unicode_errors="replace", ext_hook=_ext)
        if isinstance(value, bytes):
            return f", {count(len(value), 'byte')}"
        return f": {cut_text(repr(value))}"
    except (ValueError, msgpack.UnpackException, RecursionError, TypeError):
        return f", {count(len(content(raw)), 'byte')}"


def _ext(kind: int, data: bytes) -> Any:
    try:
        return EventTime.decode(data) if kind == 0 else msgpack.ExtType(kind, data)
    except ValueError:
        return msgpack.ExtType(kind, data)


def _stream(most: int, given: ForwardSettings | None) -> tuple[ForwardWalker, ForwardSession]:
    limits, section = (given.limits, given.forward) if given else (LimitSettings(), ForwardSection())
    return ForwardWalker(limits.frame_bytes, limits.frame_events, most), ForwardSession(PEER, limits, section)


def _replies(data: bytes) -> list[str]:
    chunks = [json.loads(data)["ack"]] if data.startswith(b"{") else ForwardReplies().receive(data)
    return [f"ack all of chunk {chunk!r} is stored" for chunk in chunks]


EXPLANATION: Final = Explanation(
    begins=lambda data: data[0] in FIRST or data[0] in (0x81, 0xC0, 0xDC, 0xDD) or 0x90 <= data[0] <= 0x9F,
    stream=_stream,
    replies=lambda: _replies,
)
