"""Where the events of a connection come from: its client, and the tags that it has sent last."""

from __future__ import annotations

from headrace_common.record import native
from headrace_common.record.event import Envelope, hashed_field

from headrace_forward.entries.ids import PROTOCOL
from headrace_forward.entries.tag import read_tag


class Origin:
    """The origin of a connection's events. Keeps the envelope of the last tag, as most connections use one tag.

    `name`: the client's, from its certificate or its login, or empty.
    """

    __slots__ = ("_envelope", "_plain", "_tag", "known", "name", "source")

    def __init__(self, source: str, name: bytes = b"") -> None:
        self.source = source
        self.name = name
        self._tag: str | None = None
        self._envelope: Envelope
        self._plain: tuple[bytes, str, bytes] | None = None  # the last tag of `plain_tag`: element, text, content
        self.known: native.Known | None = None
        """The tag of messages whose events are all made by the native core."""

    def plain_tag(self, raw: bytes, most: int) -> tuple[str, bytes] | None:
        """Returns (text, content) of a tag element, if it is a text of at most `most` bytes, and not empty."""
        if self._plain is None or self._plain[0] != raw:
            tag, tag_bytes, attributes = read_tag(raw)
            if not tag or attributes or len(tag_bytes) > most:
                return None
            self._plain = (raw, tag, tag_bytes)
        return self._plain[1:]

    def know(self, raw: bytes) -> None:
        """Makes a tag element `known`, if the message before had it, too."""
        if self._plain is not None and self._plain[0] == raw:
            _, tag, tag_bytes = self._plain
            begun = hashed_field(PROTOCOL.encode()) + hashed_field(tag_bytes)
            client = hashed_field(self.name) if self.name else b""
            self.known = (raw, self.envelope(tag).pieces, begun, client)

    def envelope(self, tag: str) -> Envelope:
        """Returns the envelope of JSON events with this tag, which may be empty."""
        if tag != self._tag:
            self._tag, self._envelope = tag, Envelope(PROTOCOL, self.source, tag)
        return self._envelope
