"""The Streaming Service protocol as Headrace knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace_common.protocol import Port, Protocol, Snippets

from headrace_segment.metrics import SegmentMetrics
from headrace_segment.settings import PORT, SegmentSettings, limits_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace_common.kafka.plan import TopicPlan
    from headrace_common.operations.settings import KafkaSettings, TopicSettings
    from headrace_common.service.parts import Parts, Runtime
    from headrace_common.session.again import Rejected, Replayed
    from headrace_common.session.client import Client
    from headrace_common.session.explain import Explanation
    from headrace_common.session.interface import ByteSession, Peer

    from headrace_segment.session.rights import Right


def build(runtime: Runtime[SegmentSettings]) -> Parts:
    """Makes stream listeners, and the replica behind them."""
    from headrace_common.service.parts import Parts
    from headrace_common.service.service import stream_listeners

    from headrace_segment.replica.segments import Segments
    from headrace_segment.session.dialects import SegmentSession
    from headrace_segment.session.rights import Rights

    settings, metrics = runtime.settings, SegmentMetrics(runtime.metrics)
    section = settings.segment
    limits = limits_of(settings.limits, section)

    def refused(peer: Peer, segment: str, right: Right) -> None:
        metrics.refused.labels(right.value).inc()
        runtime.receiver.limited.warning(
            "a request is refused", peer=peer.address, identity=peer.identity, segment=segment, right=right.value
        )

    rights = Rights(section.rights, section.token_key.get_secret_value().encode(), refused)

    def session(peer: Peer) -> ByteSession:
        return SegmentSession(peer, limits, rights, flags_in_bytes=section.read_flags == "bytes")

    segments = Segments(runtime, metrics)
    return Parts(stream_listeners(runtime, PORT, session), segments, segments, segments.topics)


def client() -> type[Client]:
    """Returns the class of its client."""
    from headrace_segment.client import SegmentClient

    return SegmentClient


def explanation() -> Explanation:
    """Returns how `explain` shows its bytes."""
    from headrace_segment.explain import EXPLANATION

    return EXPLANATION


def again() -> Callable[[Rejected, SegmentSettings], Replayed]:
    """Returns what reads an item of quarantine once more."""
    from headrace_segment.again import read

    return read


def snippets() -> Snippets:
    """Returns how its clients are pointed at a receiver."""
    from headrace_segment.snippets import MORE, SNIPPETS

    return Snippets(SNIPPETS, MORE)


def topics(kafka: KafkaSettings, wanted: TopicSettings) -> list[TopicPlan]:
    """Returns the plans of the log and of its snapshots."""
    from headrace_segment.replica.topics import plans

    return plans(kafka, wanted)


PROTOCOL: Final = Protocol(
    name="segment",
    title="Segment service",
    module="headrace_segment",
    listeners=(Port("tcp", PORT),),
    ops_port=8085,
    settings=SegmentSettings,
    build=build,
    metrics=SegmentMetrics,
    topics=topics,
    client=client,
    explanation=explanation,
    again=again,
    snippets=snippets,
    hint="a client of the Streaming Service protocol, or Pravega's Java client with a segment store at {listen}",
    tls_hint=", over TLS with {ca}",
)
