"""Where the events of a connection come from: its client, and the tag that it has sent last."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import orjson
from headrace_common.record import native
from headrace_common.record.event import Envelope, hashed_field

from headrace_forward.attributes import ForwardAttribute
from headrace_forward.entries.ids import PROTOCOL
from headrace_forward.entries.values import bin_or_text, to_json, unpack


class Origin:
    """The origin of a connection's events. Keeps what it knows of the last tag, as most connections use one.

    `name`: the client's, from its certificate or its login, or empty.
    """

    __slots__ = ("_envelope", "_raw", "_subject", "_tag", "known", "name", "source")

    def __init__(self, source: str, name: bytes = b"") -> None:
        self.source = source
        self.name = name
        self._raw = b""
        self._tag: tuple[str, bytes, dict[str, Any]]
        self._subject: str | None = None
        self._envelope: Envelope
        self.known: native.Known | None = None
        """The tag of messages whose events may all be made by the native core: one that has come before, and is a text."""

    def tag(self, raw: bytes) -> tuple[str, bytes, dict[str, Any]]:
        """Returns what `read_tag` does."""
        if raw != self._raw or not raw:
            self._raw, self._tag = raw, read_tag(raw)
            subject, content, attributes = self._tag
            if subject and not attributes:
                begun = hashed_field(PROTOCOL.encode()) + hashed_field(content)
                client = hashed_field(self.name) if self.name else b""
                self.known = (raw, self.envelope(subject).pieces, begun, client)
        return self._tag

    def envelope(self, subject: str) -> Envelope:
        """Returns the envelope of JSON events with this tag, which may be empty."""
        if subject != self._subject:
            self._subject, self._envelope = subject, Envelope(PROTOCOL, self.source, subject)
        return self._envelope


def read_tag(raw: bytes) -> tuple[str, bytes, dict[str, Any]]:
    """Returns (subject, bytes for the id, attributes). A tag that is empty or not text becomes ``-``, and its original is kept.

    Never raises: the reject of a whole message needs it too.
    """
    try:
        value = unpack(raw)
    except ValueError:
        value = None
    if isinstance(value, str | bytes):
        content = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        text = bin_or_text(content)
        if isinstance(text, str) and text:
            return text, content, {}
        return "", content, {ForwardAttribute.TAG.value: text}
    try:
        return "", raw, {ForwardAttribute.TAG.value: orjson.Fragment(to_json(raw))}
    except ValueError:
        return "", raw, {ForwardAttribute.TAG.value: {"$bin": b64encode(raw).decode()}}
