"""Whether limits fit each other, this machine and the topics."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping
from typing import Final

import psutil
from headrace_common.kafka.client import Topic
from headrace_common.operations.settings import KafkaSettings, LimitSettings, TopicSettings
from headrace_common.topics import changes, plans

from headrace_cli.operating.check.parts import Finding, Verdict
from headrace_cli.verbs.console import format_size

OWN_FILES: Final = 100
"""Files that a receiver opens beside its connections."""
RECORD_BYTES: Final = 64 * 1024
"""Room for what stands around an event in its batch: headers, and the batch's own."""


def of_machine(limits: LimitSettings) -> Iterator[Finding]:
    """Against the files and the memory of this machine. Only of use where the part runs."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if files != resource.RLIM_INFINITY and files < limits.connections + OWN_FILES:
        yield Finding(
            "limits",
            Verdict.DOUBT,
            f"LIMITS__CONNECTIONS ({limits.connections:,}) is more than this process may open files ({files:,})",
            "raise the limit of open files (ulimit -n, LimitNOFILE=), or lower LIMITS__CONNECTIONS",
        )
    memory = psutil.virtual_memory().total
    if limits.process_budget > memory // 2:
        yield Finding(
            "limits",
            Verdict.DOUBT,
            f"LIMITS__PROCESS_BUDGET ({format_size(limits.process_budget)}) is more than half of this machine's memory"
            f" ({format_size(memory)})",
            "lower it, or give the machine more memory",
        )


def of_kafka(kafka: KafkaSettings) -> Iterator[Finding]:
    """Times against one another."""
    if kafka.ack_deadline < kafka.request_timeout:
        yield Finding(
            "limits",
            Verdict.DOUBT,
            f"KAFKA__ACK_DEADLINE ({kafka.ack_deadline:g} s) is below KAFKA__REQUEST_TIMEOUT ({kafka.request_timeout:g} s):"
            " one request without an answer already costs the connection",
            "raise the deadline, or lower the time-out",
        )


def of_topic(topic: Topic, limits: LimitSettings | None) -> Iterator[Finding]:
    """A topic against the largest event, and against what the promise needs."""
    for what in topic.weak:
        yield Finding(
            "topics",
            Verdict.WRONG,
            f"{topic.name}: {what}",
            "python -m headrace_common.topics sets what can be set; replicas are moved with kafka-reassign-partitions",
        )
    if limits is not None and topic.max_message_bytes < limits.event_bytes + RECORD_BYTES:
        yield Finding(
            "topics",
            Verdict.WRONG,
            f"{topic.name}: max.message.bytes ({topic.max_message_bytes:,}) does not hold an event of LIMITS__EVENT_BYTES"
            f" ({limits.event_bytes:,}), which Kafka would refuse",
            "raise TOPICS__MAX_MESSAGE_BYTES and run python -m headrace_common.topics, or lower LIMITS__EVENT_BYTES",
        )


def of_plans(kafka: KafkaSettings, topics: TopicSettings, found: Mapping[str, Topic]) -> Iterator[Finding]:
    """What `python -m headrace_common.topics` would change."""
    for plan in plans(kafka, topics):
        topic = found.get(plan.name)
        if topic is None:
            continue
        changed = changes(plan.configuration, topic.configuration) if topic.configuration else {}
        listed = [f"{name} is {topic.configuration[name]}, wanted {value}" for name, value in changed.items()]
        if topic.partitions < plan.partitions and plan.grows:
            listed.append(f"{topic.partitions} partitions, wanted {plan.partitions}")
        if listed:
            mend = "python -m headrace_common.topics sets it"
            yield Finding("topics", Verdict.DOUBT, f"{plan.name}: {'; '.join(listed)}", mend)
        if topic.partitions != plan.partitions and not plan.grows:
            yield Finding(
                "topics",
                Verdict.DOUBT,
                f"{plan.name}: {topic.partitions} partitions, TOPICS__SEGMENTS_PARTITIONS is {plan.partitions}",
                "they never change: set TOPICS__SEGMENTS_PARTITIONS to what is there",
            )
