"""Checks the topic of the segments: with other settings, segments would be lost."""

from __future__ import annotations

from typing import Final

from headrace_common.kafka.client import Topic
from headrace_common.operations.settings import KafkaSettings, TopicSettings
from headrace_common.protocol import TopicPlan

from headrace_segment.store.records import BLOCK_OVERHEAD

_NEEDED: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "unclean.leader.election.enable": "false",
}
MESSAGE_BYTES: Final = 17 << 20
"""`max.message.bytes` of the segments topic: a block of a client's largest message, and its overhead."""

RECORD_OVERHEAD: Final = 1024
"""Bytes that a record costs in its batch beyond key and value."""


def plans(kafka: KafkaSettings, topics: TopicSettings) -> list[TopicPlan]:
    """Returns the plan for `headrace_common.topics`, unless the topic is not wanted."""
    needed = {**_NEEDED, "max.message.bytes": str(MESSAGE_BYTES)}
    needed["message.timestamp.type"] = "LogAppendTime"  # one clock for all processes
    plan = TopicPlan(kafka.segments_topic, 1, needed)
    return [plan] if topics.segments_partitions else []


def needed_bytes(frame_bytes: int, name_bytes: int) -> int:
    """Returns the `max.message.bytes` that the largest block needs. Blocks that compress badly grow a little."""
    return frame_bytes + frame_bytes // 1024 + name_bytes + BLOCK_OVERHEAD + RECORD_OVERHEAD


def problems(topic: Topic, message_bytes: int) -> list[str]:
    """Returns why the topic cannot be used, each with its remedy. Settings that we may not read are not judged."""
    there = topic.configuration
    found = [
        f"topic {topic.name}: {name} is {there[name]} and must be {value} (kafka-configs.sh sets it)"
        for name, value in _NEEDED.items()
        if there.get(name, value) != value
    ]
    if topic.partitions != 1:
        found.append(f"topic {topic.name}: it has {topic.partitions} partitions and must have 1")
    if there and topic.max_message_bytes < message_bytes:
        found.append(
            f"topic {topic.name}: max.message.bytes is {topic.max_message_bytes}, and blocks of LIMITS__FRAME_BYTES need"
            f" {message_bytes}"
        )
    return found
