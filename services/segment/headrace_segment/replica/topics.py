"""What the topics of the segments must be like, or segments would be lost."""

from __future__ import annotations

from typing import Final

from headrace_common.kafka.client import Topic

from headrace_segment.store.records import BLOCK_OVERHEAD

RECORD_OVERHEAD: Final = 1024
"""Bytes that a record costs in its batch beyond key and value."""


def needed_bytes(frame_bytes: int, name_bytes: int) -> int:
    """`max.message.bytes` that the largest block needs. Blocks that compress badly grow a little."""
    return frame_bytes + frame_bytes // 1024 + name_bytes + BLOCK_OVERHEAD + RECORD_OVERHEAD


def problems(segments: Topic, snapshots: Topic, message_bytes: int) -> list[str]:
    """Why these topics cannot be used, each with what to do. What we may not read is not judged."""
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


_FOR_EVER: Final = {"retention.ms": "-1", "retention.bytes": "-1", "unclean.leader.election.enable": "false"}


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
