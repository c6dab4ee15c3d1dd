# ruff: noqa: E501
"""Of Forward, Lumberjack and Courier."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Also, Mutant

_CHUNKS: Final = "headrace_forward.entries.ids"
_COURIER: Final = "headrace_courier.session"
_ENTRIES: Final = "headrace_forward.entries.builder"
_FORWARD: Final = "headrace_forward.session"
_IDENTITY: Final = "headrace_lumberjack.identity"
_JSON: Final = "headrace_common.session.json_events"
_LINES: Final = "headrace_lumberjack.events"
_LUMBERJACK: Final = "headrace_lumberjack.session"
_FRAMES: Final = "headrace_lumberjack.wire"
_MESSAGES: Final = "headrace_forward.events.message"
_PAYLOADS: Final = "headrace_courier.events"
_TCP: Final = "headrace_common.connection.tcp"

_GOES_ON: Final = Also(
    _TCP,
    "        elif end is End.UNSETTLED:\n            self._drain()",
    "        elif end is End.UNSETTLED:\n            self._flush()",
)
"""The connection's own guard: with it, the session's is never asked."""

STREAMS: Final = (
    Mutant("a Forward message is answered when it arrives", _FORWARD, "        return self._pending.add(reply)", "        self._handshake_replies.append(reply or b\"\")\n        return self._pending.add(None)"),
    Mutant("who asks for no acknowledgement is not heard out", _FORWARD, "        self._unacknowledgeable |= reply is None\n", ""),
    Mutant("a Forward message without a chunk is forgotten", _FORWARD, "        ticket = self._await(option.reply)\n", "        if option.reply is None:\n            return\n        ticket = self._await(option.reply)\n"),
    Mutant("a window is acknowledged before all of it is stored", _LUMBERJACK, "            if oldest.missing or oldest.storing:", "            if oldest.missing:", "lumberjack"),
    Mutant("a payload is acknowledged before it is stored", _COURIER, "            if self._pending.pop_whole() is not None:", "            if self._pending.entries.popitem(last=False):", "courier"),
    Mutant("an abandoned window is acknowledged", _LUMBERJACK, "        self._ended = True\n\n    @override\n    def outgoing", "        self.stored(ticket, 0, True)\n\n    @override\n    def outgoing", "lumberjack", (_GOES_ON,)),
    Mutant("an abandoned payload is acknowledged", _COURIER, "        self._abandoned = True\n", "        self.stored(ticket, 0, True)\n", "courier", (_GOES_ON,)),
    Mutant("equal events of a message share an id", _ENTRIES, "event(ids(index), text, value, self.attributes", "event(ids(0), text, value, self.attributes"),
    Mutant("a hash of the content names a message", _CHUNKS, "return abs(int.from_bytes(decoded[:8], \"little\") - now) > NEAR", "return False"),
    Mutant("equal events of a payload share an id", _PAYLOADS, "left = self.count - index", "left = 0", "courier"),
    Mutant("equal lines of a file share an id", _IDENTITY, 'begun + hashed_field(b"%d" % log.offset)', "begun", "lumberjack"),
    Mutant("a window that has not come whole is acknowledged", _LUMBERJACK, "            if oldest.missing or oldest.storing:", "            if oldest.storing:", "lumberjack"),
    Mutant("a run counts once a part of it is stored", _LUMBERJACK, "        if whole:\n            self._storing", "        if ticket in self._storing:\n            self._storing", "lumberjack"),
    Mutant("a keep-alive says the last number that has come", _LUMBERJACK, "acknowledgement(V2, 0)", "acknowledgement(V2, window.last)", "lumberjack"),
    Mutant("a client of version 1 hears keep-alives", _LUMBERJACK, "if oldest.version == V2 and oldest.storing", "if oldest.storing", "lumberjack"),
    Mutant("a window of version 1 is answered at its end", _LUMBERJACK, "            if oldest.missing or oldest.storing:", "            if oldest.missing or (oldest.version == V2 and oldest.storing):", "lumberjack"),
    Mutant("the newest window is acknowledged", _LUMBERJACK, "            self._windows.popleft()\n            self._empty", "            self._windows.pop()\n            self._empty", "lumberjack"),
    Mutant("a window is acknowledged twice", _LUMBERJACK, "acknowledgement(oldest.version, oldest.last)\n", "acknowledgement(oldest.version, oldest.last) * 2\n", "lumberjack"),
    Mutant("files of two agents share their ids", _IDENTITY, "(written, agent.id, agent.ephemeral_id, stream, dataset)", "(written, stream, dataset)", "lumberjack"),
    Mutant("content of a C frame is taken in another order", _FRAMES, 'content += piece or b""', 'content[:0] = piece or b""', "lumberjack"),
    Mutant("a line of version 1 is cut off", "headrace_lumberjack.pairs", "letters_of(frame[at + 4 : end])", "letters_of(frame[at + 4 : min(end, at + 304)])", "lumberjack"),
    Mutant("a long event lacks its beginning", _LINES, "yield data[at:end] if end - at <= SHORT", "yield data[at + 1:end] if end - at == 301 or end - at <= SHORT and end == run.ends[min(7, len(run) - 1)]", "lumberjack"),
    Mutant("an event in quarantine is another of its window", _LINES, "reject(*fault, bytes(raw), unique_id()", "reject(*fault, bytes(raw)[1:], unique_id()", "lumberjack"),
    Mutant("a partial ACKN counts an event more", _COURIER, "note, stored = oldest.note, oldest.stored", "note, stored = oldest.note, min(oldest.stored + (oldest.stored > 0), oldest.note.count)", "courier"),
    Mutant("a repeated ACKN counts all", _COURIER, "acknowledgement(oldest.note.nonce, oldest.note.reported)", "acknowledgement(oldest.note.nonce, oldest.note.count)", "courier"),
    Mutant("a payload that still comes is acknowledged in part", _COURIER, "[acknowledgement(arriving, 0)]", "[acknowledgement(arriving, 1)]", "courier"),
    Mutant("a payload is acknowledged for any part of it", _COURIER, "            elif stored <= note.reported:\n                break\n", "            elif stored <= note.reported:\n                break\n            else:\n                stored = note.count\n", "courier"),
    Mutant("an ACKN has the nonce of the newest payload", _COURIER, "            out.append(acknowledgement(note.nonce, stored))\n", "            out.append(acknowledgement(next(reversed(self._pending.entries.values())).note.nonce if self._pending else note.nonce, stored))\n", "courier"),
    Mutant("payloads of two clients share an envelope", _JSON, "key = (identity, stream)", "key = (str(), stream)", "courier"),
    Mutant("ids do not know the payload", _PAYLOADS, "deterministic_id(PROTOCOL, self._payload.nonce,", "deterministic_id(PROTOCOL, bytes(),", "courier"),
    Mutant("a resend's ids count from its beginning", _PAYLOADS, "left = self.count - index", "left = index", "courier"),
    Mutant("an entry between two pieces is lost", "headrace_courier.wire", "            self._pieces = [data[at:]]\n", "            self._pieces = []\n", "courier"),
    Mutant("a message is acknowledged before it is stored", _FORWARD, "        while pending.entries and (oldest := pending.pop_whole()) is not None:", "        while pending.entries and (oldest := pending.entries.popitem(last=False)[1]) is not None:"),
    Mutant("a message hears the answer of the one before", _FORWARD, "        return self._pending.add(reply)\n", '        self._said, before = reply, getattr(self, "_said", reply)\n        return self._pending.add(before)\n'),
    Mutant("an event of a message is dropped", _ENTRIES, "                yield event or (yield", "                if event and index == 2:\n                    index, start = index + 1, end\n                    continue\n                yield event or (yield"),
    Mutant("two messages have the same ids", _MESSAGES, "ids = yield from message_ids(tag_bytes, self._option.chunk, self._origin.name, body,", 'ids = yield from message_ids(tag_bytes, b"0123456789abcdef", self._origin.name, body[:8],'),
)  # fmt: skip
