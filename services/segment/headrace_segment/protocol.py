"""The Streaming Service protocol as Headrace knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace_common.protocol import Port, Protocol

from headrace_segment.metrics import SegmentMetrics
from headrace_segment.settings import PORT, SegmentSettings

if TYPE_CHECKING:
    from headrace_common.operations.settings import KafkaSettings, TopicSettings
    from headrace_common.protocol import TopicPlan
    from headrace_common.service.parts import Parts, Runtime
    from headrace_common.session.interface import ByteSession, Peer


def build(runtime: Runtime[SegmentSettings]) -> Parts:
    """Makes stream listeners, and the owner of the segments that answers them."""
    from headrace_common.service.parts import Parts
    from headrace_common.service.service import stream_listeners

    from headrace_segment.replica.owner import Owner
    from headrace_segment.session.conversation import SegmentSession

    settings, metrics = runtime.settings, SegmentMetrics(runtime.metrics)

    def session(peer: Peer) -> ByteSession:
        return SegmentSession(peer, settings.limits, settings.segment)

    owner = Owner(runtime, metrics)
    return Parts(stream_listeners(runtime, PORT, session), owner, owner)


def topics(kafka: KafkaSettings, wanted: TopicSettings) -> list[TopicPlan]:
    """Returns the plan of the log."""
    from headrace_segment.replica.topics import plans

    return plans(kafka, wanted)


PROTOCOL: Final = Protocol(
    name="segment",
    title="Segment service",
    listeners=(Port("tcp", PORT),),
    ops_port=8085,
    settings=SegmentSettings,
    build=build,
    metrics=SegmentMetrics,
    topics=topics,
    client="headrace_segment.client:SegmentClient",
    session="headrace_segment.session.conversation:SegmentSession",
    again="headrace_segment.again:read",
    hint="a client of the Streaming Service protocol, or Pravega's Java client with a segment store at {listen}",
)
