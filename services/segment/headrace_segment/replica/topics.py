"""Checks the topics of the segments: with other settings, segments would be lost."""

from __future__ import annotations

from typing import Final

from headrace_common.kafka.client import Topic
from headrace_common.kafka.plan import HOUR_MS, TopicPlan
from headrace_common.operations.settings import KafkaSettings, TopicSettings

from headrace_segment.store.records import BLOCK_OVERHEAD

_FOR_EVER: Final = {"retention.ms": "-1", "retention.bytes": "-1", "unclean.leader.election.enable": "false"}
MESSAGE_BYTES: Final = 17 << 20
"""`max.message.bytes` of the segments topic: a block of a client's largest message, and its overhead."""
SNAPSHOT_BYTES: Final = 4 << 20
"""`max.message.bytes` of the topic of snapshots."""

RECORD_OVERHEAD: Final = 1024
"""Bytes that a record costs in its batch beyond key and value."""


def plans(kafka: KafkaSettings, topics: TopicSettings) -> list[TopicPlan]:
    """Returns the plans for `headrace_common.topics`: of two topics, unless they are not wanted."""
    shared = {**_FOR_EVER, "message.timestamp.type": "LogAppendTime"}  # one clock for all replicas
    segments = {**shared, "cleanup.policy": "delete", "max.message.bytes": str(MESSAGE_BYTES)}
    snapshots = {
        **shared,
        "cleanup.policy": "compact",
        "max.message.bytes": str(SNAPSHOT_BYTES),
        # Kafka does not compact the newest file, and a set is read as a whole at each start.
        "segment.ms": str(HOUR_MS),
        "segment.bytes": str(64 << 20),
        "min.cleanable.dirty.ratio": "0.1",
        "delete.retention.ms": str(HOUR_MS),
    }
    number = topics.segments_partitions
    found = [
        TopicPlan("KAFKA__SEGMENTS_TOPIC", kafka.segments_topic, number, segments, grows=False),
        TopicPlan("KAFKA__SNAPSHOTS_TOPIC", kafka.snapshots_topic, number, snapshots, grows=False),
    ]
    return found if number else []


def needed_bytes(frame_bytes: int, name_bytes: int) -> int:
    """Returns the `max.message.bytes` that the largest block needs. Blocks that compress badly grow a little."""
    return frame_bytes + frame_bytes // 1024 + name_bytes + BLOCK_OVERHEAD + RECORD_OVERHEAD


def problems(segments: Topic, snapshots: Topic, message_bytes: int) -> list[str]:
    """Returns why these topics cannot be used, each with its remedy. Settings that we may not read are not judged."""
    found = []
    if snapshots.partitions != segments.partitions:
        found.append(
            f"topic {segments.name} has {segments.partitions} partitions and {snapshots.name} has {snapshots.partitions}:"
            " their number may never change, since a segment's name chooses its partition"
        )
    found += _differences(segments, {"cleanup.policy": "delete", **_FOR_EVER})
    found += _differences(snapshots, {"cleanup.policy": "compact", **_FOR_EVER})
    if segments.configuration and segments.max_message_bytes < message_bytes:
        found.append(
            f"topic {segments.name}: max.message.bytes is {segments.max_message_bytes}, and blocks of LIMITS__FRAME_BYTES need"
            f" {message_bytes}"
        )
    return found


def _differences(topic: Topic, wanted: dict[str, str]) -> list[str]:
    there = topic.configuration
    return [
        f"topic {topic.name}: {name} is {there[name]} and must be {value} (python -m headrace_common.topics sets it)"
        for name, value in wanted.items()
        if name in there
        and there[name] != value
        # Kafka's own retention matters only where it deletes at all
        and not (name.startswith("retention") and wanted["cleanup.policy"] == there.get("cleanup.policy") == "compact")
    ]
