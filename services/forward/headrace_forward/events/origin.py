"""What the messages of a connection share: its client, its limits, and the tag that it has sent last."""

from __future__ import annotations

from headrace_common.operations.settings import LimitSettings
from headrace_common.record import native
from headrace_common.record.event import Envelope, hashed_field

from headrace_forward.entries.ids import PROTOCOL
from headrace_forward.kinds import KINDS, TEXTS, content


class Origin:
    """The origin of a connection's events. Keeps what it knows of the last tag, as most connections use one.

    `name`: the client's, from its certificate or its login, or empty.
    """

    def __init__(self, source: str, name: bytes, limits: LimitSettings, tag_bytes: int, option_bytes: int) -> None:
        """`tag_bytes`, `option_bytes`: the longest tag and the largest option of a message."""
        self.limits = limits
        self.tag_bytes = tag_bytes
        self.option_bytes = option_bytes
        self.source = source
        self.name = name
        self._raw = b""
        self._tag: str | None = None
        self._subject: str | None = None
        self._envelope: Envelope
        self.known: native.Known | None = None
        """The tag of messages whose events may all be made by the native core: one that has come before, and is not empty."""

    def tag(self, raw: bytes) -> str | None:
        """Returns what `read_tag` does."""
        if raw != self._raw:
            self._raw, self._tag = raw, read_tag(raw)
            if self._tag:
                begun = hashed_field(PROTOCOL.encode()) + hashed_field(self._tag.encode())
                client = hashed_field(self.name) if self.name else b""
                self.known = (raw, self.envelope(self._tag).pieces, begun, client)
        return self._tag

    def envelope(self, subject: str) -> Envelope:
        """Returns the envelope of JSON events with this tag, which may be empty."""
        if subject != self._subject:
            self._subject, self._envelope = subject, Envelope(PROTOCOL, self.source, subject)
        return self._envelope


def read_tag(raw: bytes) -> str | None:
    """Returns the tag, which may be empty; None if `raw` is no text in UTF-8."""
    if KINDS[raw[0]] not in TEXTS:
        return None
    try:
        return content(raw).decode()
    except UnicodeDecodeError:
        return None
