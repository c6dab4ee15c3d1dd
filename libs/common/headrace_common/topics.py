"""Makes the topics: ``python -m headrace_common.topics``. Safe at any time: it makes no existing value smaller.

It creates missing topics, adds partitions (where a plan lets it), raises limits that are too small, and sets the settings
that the promise rests on. Receivers only check. It never moves replicas; it reports too few of them.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, LeaderNotAvailableError, UnknownTopicOrPartitionError

from headrace_common.kafka.client import check, client_arguments, explain, topic_settings
from headrace_common.kafka.plan import HOUR_MS, NO_LIMIT, TopicPlan
from headrace_common.operations import log
from headrace_common.operations.errors import EXIT_CONFIG, ConfigError, DeliveryError, DeliveryPolicy
from headrace_common.operations.settings import KafkaSettings, TopicSettings, TopicsProcessSettings, parse_arguments
from headrace_common.protocol import installed

BOUND: Final = 60.0
"""Seconds within which brokers must answer and new partitions must have a leader."""

_RAISED: Final = ("retention.ms", "retention.bytes", "max.message.bytes", "min.insync.replicas")
_TOPIC_OVERRIDE: Final = 1  # config_source of DescribeConfigs: set on the topic itself
ENSURE_PAUSE: Final = 0.1
"""Seconds between two tries."""


def plans(kafka: KafkaSettings, topics: TopicSettings) -> list[TopicPlan]:
    """Returns the plans of the events topic, the quarantine topic and those of the protocols that have topics of their own."""
    own = [protocol.topics(kafka, topics) for protocol in installed() if protocol.topics is not None]
    return [*_records(kafka, topics), *itertools.chain.from_iterable(own)]


def _records(kafka: KafkaSettings, topics: TopicSettings) -> list[TopicPlan]:
    shared = {
        "cleanup.policy": "delete",
        "max.message.bytes": str(topics.max_message_bytes),
        "retention.bytes": str(topics.retention_bytes),
        "unclean.leader.election.enable": "false",
        # The record's timestamp is the receive time, so Kafka must refuse it if a receiver's clock is wrong.
        "message.timestamp.type": "CreateTime",
        "message.timestamp.before.max.ms": str(24 * HOUR_MS),
        "message.timestamp.after.max.ms": str(HOUR_MS),
    }
    return [
        TopicPlan(
            "KAFKA__EVENTS_TOPIC",
            kafka.events_topic,
            topics.events_partitions,
            {**shared, "retention.ms": str(topics.events_retention * 1000)},
        ),
        TopicPlan(
            "KAFKA__QUARANTINE_TOPIC",
            kafka.quarantine_topic,
            topics.quarantine_partitions,
            {**shared, "retention.ms": str(topics.quarantine_retention * 1000)},
        ),
    ]


def changes(wanted: Mapping[str, str], present: Mapping[str, str | None]) -> dict[str, str]:
    """Returns the settings to change so that `present` meets `wanted`: limits are only raised, others are set as wanted.

    A setting that the broker does not report stays: the broker is too old to know it.
    """
    changed = {}
    for name, value in wanted.items():
        current = present.get(name)
        if current is None or current == value:
            continue
        if name not in _RAISED or _below(int(current), int(value)):
            changed[name] = value
    return changed


def _below(current: int, wanted: int) -> bool:
    return current != NO_LIMIT and (wanted == NO_LIMIT or current < wanted)


async def ensure(kafka: KafkaSettings, topics: TopicSettings, *, bound: float = BOUND) -> list[str]:
    """Makes the topics meet the settings and waits until every partition has a leader. Returns a line for each change.

    Tries it for `bound` seconds, longer only inside a request: brokers start, or do not all know a topic yet. Raises
    `DeliveryError` if they do not answer, refuse, or cannot hold the replicas; `ConfigError` if the CA cannot be read.
    """
    deadline = time.monotonic() + bound
    planned = plans(kafka, topics)
    if len({plan.name for plan in planned}) < len(planned):
        raise ConfigError(" and ".join(plan.setting for plan in planned) + " must differ")
    done: dict[str, None] = {}
    while True:
        client = AIOKafkaAdminClient(**client_arguments(kafka))
        try:
            await asyncio.wait_for(client.start(), max(1.0, deadline - time.monotonic()))
            await _ensure(client, planned, topics.replication, done)
            return [*done]
        except (KafkaError, OSError, TimeoutError, AttributeError) as error:
            # AttributeError: aiokafka uses the controller's node before it knows which one that is.
            if time.monotonic() >= deadline:
                raise DeliveryError(
                    f"Kafka at {kafka.bootstrap_servers} did not do it within {bound:.0f} s: {explain(error)}",
                    DeliveryPolicy.RETRY,
                ) from error
        finally:
            await client.close()
        await asyncio.sleep(ENSURE_PAUSE)


async def _ensure(
    client: AIOKafkaAdminClient, planned: Sequence[TopicPlan], replication: int | None, done: dict[str, None]
) -> None:
    """Makes the topics meet their plans, and adds a line for each change to `done`.

    Raises `KafkaError`, also while brokers do not know yet what it has made: then it is called again.
    """
    replicas = replication or (3 if len((await client.describe_cluster())["brokers"]) >= 3 else 1)
    for plan in planned:
        there = len(await _partitions(client, plan.name))
        if not there:
            topic = NewTopic(plan.name, plan.partitions, replicas, topic_configs=plan.for_replicas(replicas))
            response = await client.create_topics([topic])
            check((code, message) for _, code, message in response.topic_errors)
            done[f"{plan.name}: created, {plan.partitions} partitions, {replicas} replicas"] = None
        elif there < plan.partitions and plan.grows:
            await client.create_partitions({plan.name: NewPartitions(plan.partitions)})
            done[f"{plan.name}: {there} -> {plan.partitions} partitions"] = None
    for plan in planned:
        partitions = await _partitions(client, plan.name)
        led = sum(partition["leader"] >= 0 for partition in partitions)
        if led < (plan.partitions if plan.grows else max(1, len(partitions))):
            raise LeaderNotAvailableError(f"{plan.name}: {led} partitions have a leader")
        await _configure(client, plan, min(len(partition["replicas"]) for partition in partitions), replicas, done)


async def _configure(
    client: AIOKafkaAdminClient, plan: TopicPlan, has: int, replicas: int, done: dict[str, None]
) -> None:
    """Changes the settings of a topic that has so many replicas as its plan wants them."""
    entries = await topic_settings(client, plan.name)
    present = {name: value for name, (value, _) in entries.items()}
    changed = changes(plan.for_replicas(has), present)
    if changed:
        # AlterConfigs replaces the topic's whole configuration, so include what others have set.
        kept = {name: value for name, (value, source) in entries.items() if source == _TOPIC_OVERRIDE}
        resource = ConfigResource(ConfigResourceType.TOPIC, plan.name, {**kept, **changed})
        for response in await client.alter_configs([resource]):
            check((item[0], item[1]) for item in response.resources)
    done.update(dict.fromkeys(f"{plan.name}: {name} {present[name]} -> {value}" for name, value in changed.items()))
    if has < replicas:
        done[f"{plan.name}: has {has} replicas instead of {replicas}; an operator must move replicas"] = None


async def _partitions(client: AIOKafkaAdminClient, name: str) -> list[dict[str, Any]]:
    """Returns the topic's partitions; an empty list if the topic does not exist, or the broker does not know it yet."""
    (topic,) = await client.describe_topics([name])
    if topic["error_code"] == UnknownTopicOrPartitionError.errno:
        return []
    check([(topic["error_code"], name)])
    return list(topic["partitions"])


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the topics. Exit status 0: they meet the settings; 1: they could not be made; 78: the settings are wrong."""
    try:
        settings = parse_arguments(
            TopicsProcessSettings, "python -m headrace_common.topics", "Make the topics of Headrace.", argv
        )
        logger = log.configure(settings.log, "topics")
        done = asyncio.run(ensure(settings.kafka, settings.topics))
    except ConfigError as error:
        print(f"topics: {error}", file=sys.stderr)
        return EXIT_CONFIG
    except DeliveryError as error:
        print(f"topics: {error}", file=sys.stderr)
        return 1
    for line in done or ["nothing to do"]:
        logger.info(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
