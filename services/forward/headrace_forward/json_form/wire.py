"""Forward as JSON: the same messages, for a connection whose first byte is ``[`` or ``{``. Pure.

fluentd accepts JSON on its msgpack port (in_forward.rb, `read_messages`); fluent-logger-golang sends it with `MarshalAsJSON`.
Values follow each other with or without white space; `null` is a heartbeat. Brackets are the framing, so a value that is
unbalanced or not JSON ends the connection. The content stays as received, byte for byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from headrace_common.operations.errors import ProtocolError
from headrace_common.record.json_object import deepest
from headrace_common.record.steps import finish
from typing_extensions import override

from headrace_forward.entries.option import DEPTH, Option
from headrace_forward.json_form.values import integer, string
from headrace_forward.wire import SAMPLE

FIRST: Final = b"[{"
"""First bytes of a connection that speaks JSON. No msgpack message begins with them."""

_FLAT: Final = rb"[^\"\[\]{}]++"
_STRING: Final = rb'"(?:[^"\\]++|\\.)*+"'


def _groups(deepest: int) -> bytes:
    """Returns a pattern for one bracketed group, at most `deepest` brackets deep; it never backtracks."""
    inner = _FLAT + b"|" + _STRING
    group = rb"[\[{](?:" + inner + rb")*+[\]}]"
    for _ in range(deepest - 1):
        group = rb"[\[{](?:" + inner + b"|" + group + rb")*+[\]}]"
    return group


_BALANCED: Final = re.compile(rb"(?:" + _FLAT + b"|" + _STRING + b"|" + _groups(16) + rb")*", re.DOTALL)
"""Matches the longest balanced text in one step: most messages take two or three. Nothing follows that could make it backtrack;
possessive, CPython before 3.11.5 (gh-106052) would take what a group had matched that did not end.
"""

_REST_OF_TEXT: Final = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
DEEPEST: Final = 1024
"""Maximum open brackets that the decoder follows. JSON readers give up at fewer."""

_BETWEEN: Final = re.compile(rb"(?:[ \t\r\n]++|null)*+")
"""White space and heartbeats."""

_NULL: Final = b"null"

MESSAGES: Final = 64
"""Messages after which `JsonDecoder.receive` pauses: a few milliseconds of work."""

LEAPS: Final = 2048
"""Brackets beyond the pattern's depth after which `JsonDecoder.receive` pauses."""

SEARCHED: Final = 64 << 10
"""Bytes that `JsonDecoder.receive` searches for the end of a message before it pauses, twice at most."""

LOOSE_BYTES: Final = 256 << 10
"""Largest message that a lenient but wasteful reader reads after the strict one has refused it."""


_NOTHING: Final = msgspec.Raw(b"")


class _Elements(msgspec.Struct, array_like=True):
    """The first elements of a message. Further elements are skipped, not collected."""

    tag: msgspec.Raw = _NOTHING
    second: msgspec.Raw = _NOTHING
    third: msgspec.Raw = _NOTHING
    fourth: msgspec.Raw = _NOTHING
    fifth: msgspec.Raw = _NOTHING
    sixth: msgspec.Raw = _NOTHING
    seventh: msgspec.Raw = _NOTHING


class _Asked(msgspec.Struct):
    """The fields of an option that Headrace uses; the rest is skipped."""

    chunk: msgspec.Raw = msgspec.Raw(b"null")
    fluent_signal: msgspec.Raw = msgspec.Raw(b"0")
    metadata: msgspec.Raw = msgspec.Raw(b"{}")


_message = msgspec.json.Decoder(_Elements).decode
_asked = msgspec.json.Decoder(_Asked).decode


@dataclass(slots=True)
class JsonMessage:
    """One complete top-level array. `elements`: the texts of its elements; None if only a lenient reader accepts it.

    `loose`: then, the lenient reader's result.
    """

    raw: bytes
    offset: int
    elements: list[msgspec.Raw] | None
    loose: list[Any] = field(default_factory=list)

    def element(self, index: int) -> bytes:
        """Returns element `index`, or empty bytes."""
        return bytes(self.view(index))

    def view(self, index: int) -> memoryview:
        """Returns element `index`, without a copy."""
        assert self.elements is not None
        return memoryview(self.elements[index] if index < len(self.elements) else b"")

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        return len(self.raw)

    @property
    def option_index(self) -> int:
        """The position of the option in this mode; the message may lack it."""
        return 2 if bytes(self.view(1)[:1]) in (b"[", b'"') else 3


@dataclass(slots=True)
class JsonDecoder:
    """Decodes bytes, split anywhere, into messages of at most `frame_bytes`. Reads each byte a few times at most."""

    frame_bytes: int
    origin: int = 0
    paused: bool = field(init=False, default=False)
    """It has not parsed all received bytes: call `receive` with no bytes to continue."""

    _buffer: bytearray = field(init=False, default_factory=bytearray)
    _base: int = field(init=False, default=0)
    _at: int = field(init=False, default=0)  # where to continue in the buffer
    _open: int = field(init=False, default=0)  # open brackets
    _inside: bool = field(init=False, default=False)  # inside a text
    _alone_at: int = field(init=False, default=0)  # buffer size for the next attempt to read it as one message
    _failed: ProtocolError | None = field(init=False, default=None)

    def partial_bytes(self) -> int:
        """Returns the bytes kept for an incomplete message."""
        return len(self._buffer)

    def receive(self, data: bytes) -> Iterator[JsonMessage]:
        """Yields the messages that `data` completes. Exhaust it before the next call.

        Raises `ProtocolError` where the stream becomes invalid; every later call raises it again.
        """
        if self._failed is not None:
            raise self._failed
        self._buffer += data
        self.paused = False
        for _ in range(MESSAGES):
            message = self._next()
            if message is None:
                break
            yield message
        else:
            self.paused = True
        if len(self._buffer) > self.frame_bytes and not self.paused:
            raise self._fault("a message is too large", "LIMITS__FRAME_BYTES")

    def cut_off(self) -> ProtocolError:
        """Returns the fault of a peer that closes inside a message."""
        return self._fault("the stream ends inside a message")

    def _next(self) -> JsonMessage | None:
        """Returns the first message in the buffer; None if it is not complete, or not known to be."""
        if not self._open and not self._begin():
            return None
        message = self._alone()
        if message is not None:
            return message
        end = self._end()
        if end is None:
            return None
        raw = bytes(self._buffer[:end])
        if len(raw) > self.frame_bytes:
            raise self._fault("a message is too large", "LIMITS__FRAME_BYTES")
        message = self._message(raw)
        self._drop(end)
        return message

    def _alone(self) -> JsonMessage | None:
        """Returns the message, if the buffer holds just that one. Most do, and searching for the end takes ten times as long."""
        size = len(self._buffer)
        if size < self._alone_at or size > self.frame_bytes or not self._buffer.endswith(b"]"):
            return None
        self._alone_at = 2 * size  # so that each byte is read at most twice, however it is split
        raw = bytes(self._buffer)
        try:
            message = JsonMessage(raw, self.origin + self._base, _texts(raw))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        self._drop(size)
        return message

    def _end(self) -> int | None:
        """Returns the end of the first array in the buffer; None if it has not arrived or the decoder pauses."""
        buffer = self._buffer
        limit = min(len(buffer), self._at + SEARCHED)
        for _ in range(LEAPS):
            match = (_REST_OF_TEXT if self._inside else _BALANCED).match(buffer, self._at, limit)
            assert match is not None
            self._at = match.end()
            if self._at == limit or buffer[self._at] == 0x5C:  # a backslash whose other half is beyond the limit
                self.paused = limit < len(buffer)
                return None
            byte = buffer[self._at]
            self._at += 1
            if byte == 0x22:
                self._inside = not self._inside
            elif byte in b"[{":
                self._open += 1
                if self._open > DEEPEST:
                    raise self._fault("nested too deep to be read", "LIMITS__DEPTH")
            else:
                self._open -= 1
                if not self._open:
                    return self._at
        self.paused = True
        return None

    def _begin(self) -> bool:
        """Skips white space and heartbeats. Returns whether an array begins."""
        buffer = self._buffer
        match = _BETWEEN.match(buffer)
        assert match is not None
        self._drop(match.end())
        if not buffer or _NULL.startswith(buffer):
            return False
        if not buffer.startswith(b"["):
            raise self._fault("neither a message nor a heartbeat")
        self._at = self._open = 1
        return True

    def _message(self, raw: bytes) -> JsonMessage:
        offset = self.origin + self._base
        try:
            return JsonMessage(raw, offset, _texts(raw))
        except RecursionError as error:
            raise self._fault("nested too deep to be read", "LIMITS__DEPTH") from error
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pass
        if len(raw) > LOOSE_BYTES:
            raise self._fault("not JSON, or a text in it is not Unicode")
        try:  # half a surrogate pair, which JavaScript may write, is valid JSON but not text
            loose = json.loads(raw.decode("utf-8", "replace"))
        except (ValueError, RecursionError) as error:
            raise self._fault(f"not JSON: {error}"[:200]) from error
        return JsonMessage(raw, offset, None, loose)

    def _drop(self, count: int) -> None:
        del self._buffer[:count]
        self._base += count
        self._at = self._open = self._alone_at = 0
        self._inside = False  # `_alone` may take a message in whose text `_end` has stopped

    def _fault(self, problem: str, limit: str | None = None) -> ProtocolError:
        sample = bytes(self._buffer[:SAMPLE])
        self._failed = ProtocolError(problem, limit=limit, offset=self.origin + self._base, sample=sample)
        self.paused = False
        self._buffer.clear()
        return self._failed


def _texts(raw: bytes) -> list[msgspec.Raw]:
    """Returns the texts of an array's first elements. Raises msgspec's errors."""
    given = _message(raw)
    kept = (given.tag, given.second, given.third, given.fourth, given.fifth, given.sixth, given.seventh)
    return [element for element in kept if len(element)]


class JsonOption(Option):
    """An option map that came as JSON and stays JSON."""

    __slots__ = ()

    @override
    def json(self) -> bytes:
        return self.raw if finish(deepest(self.raw)) <= DEPTH else b"null"


NONE: Final = JsonOption(raw=b"null")


def read_option(message: JsonMessage) -> JsonOption:
    """Returns the option of `message`. Never raises."""
    if message.elements is None:
        return _loose_option(message.loose)
    raw = message.element(message.option_index)
    if raw in (b"", b"null", b"{}"):
        return NONE
    try:
        raw.decode()
        asked = _asked(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return JsonOption(raw=b"null", problem="the option is not a map")
    reply: bytes | None = bytes(asked.chunk)
    assert reply is not None
    chunk = None
    if reply == b"null":
        reply = None
    elif reply.startswith(b'"'):
        chunk = (string(reply) or "").encode()
    elif integer(reply) is not None:
        chunk = reply
    else:
        return JsonOption(raw=raw, problem="the chunk is neither a text nor an integer")
    metadata = bytes(asked.metadata)
    signal = integer(bytes(asked.fluent_signal))
    kept = metadata if metadata.startswith(b"{") and metadata != b"{}" else None
    return JsonOption(chunk=chunk, reply=reply, signal=signal or 0, metadata=kept, raw=raw)


def _loose_option(loose: list[Any]) -> JsonOption:
    """Reads only the chunk, so that a message that goes to quarantine can still be acknowledged."""
    index = 2 if len(loose) > 1 and isinstance(loose[1], list | str) else 3
    option = loose[index] if len(loose) > index else None
    chunk = option.get("chunk") if isinstance(option, dict) else None
    if not isinstance(chunk, str):
        return NONE
    return JsonOption(chunk=chunk.encode("utf-8", "surrogatepass"), reply=json.dumps(chunk).encode())


def acknowledgement(reply: bytes) -> bytes:
    """Makes the answer for a chunk from its text as received: the same text goes back."""
    return b'{"ack":' + reply + b"}"
