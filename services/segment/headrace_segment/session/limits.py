"""Limits on the requests of one client, in either dialect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WAITING: Final = 256
"""Bytes that a request costs, beyond its own, while it waits for those before it."""

WRITE_BYTES: Final = 64 << 10
"""Replies are handed out in pieces of about this size, or one by one if they are larger: what the transport holds of a
client that does not read is at most one reply more than its own buffer."""

REPLIES: Final = 2048
"""Replies that wait to leave and cost nothing, so that acknowledgements do not trouble the budgets; each further one is a request
that waits."""

READS: Final = 1024
"""Reads of one connection that have no answer yet."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Limits on the requests of one client. Sizes in bytes.

    `frame_bytes`: a message or a block; `event_bytes`: an event on the events topic; `reply_bytes`: the data of one SegmentRead;
    `segment_bytes`: a segment's name; `writers`: those that one connection sets up.
    """

    frame_bytes: int
    event_bytes: int
    reply_bytes: int
    segment_bytes: int
    writers: int
