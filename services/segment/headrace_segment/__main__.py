"""``python -m headrace_segment``: the segment service. With ls, cat, info, seal or delete: looks at segments instead."""

from __future__ import annotations

import sys

from headrace_common.record.contract import WireProtocol
from headrace_common.service.parts import Parts, Runtime
from headrace_common.service.service import main, stream_listeners
from headrace_common.session.interface import ByteSession, Peer

from headrace_segment import look
from headrace_segment.replica.segments import Segments
from headrace_segment.session.dialects import SegmentSession
from headrace_segment.session.limits import Limits
from headrace_segment.session.rights import Right, Rights
from headrace_segment.settings import PORT, SegmentSettings


def build(runtime: Runtime[SegmentSettings]) -> Parts:
    """Stream listeners, and the replica behind them."""
    settings = runtime.settings
    section = settings.segment
    limits = Limits(
        settings.limits.frame_bytes,
        settings.limits.event_bytes,
        section.reply_bytes,
        section.name_bytes,
        section.connection_writers,
    )

    def refused(peer: Peer, segment: str, right: Right) -> None:
        runtime.metrics.segment_refused.labels(right.value).inc()
        runtime.receiver.limited.warning(
            "a request is refused", peer=peer.address, identity=peer.identity, segment=segment, right=right.value
        )

    rights = Rights(section.rights, section.token_key.get_secret_value().encode(), refused)

    def session(peer: Peer) -> ByteSession:
        return SegmentSession(peer, limits, rights, flags_in_bytes=section.read_flags == "bytes")

    segments = Segments(runtime)
    return Parts(stream_listeners(runtime, PORT, session), segments, segments, segments.topics)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in look.VERBS:
        sys.exit(look.main(sys.argv[1:]))
    main(WireProtocol.SEGMENT, SegmentSettings, build)
