"""Makes the topics: ``python -m headrace_common.topics``. Safe at any time: it makes no existing value smaller.

It creates missing topics, adds partitions (where a plan lets it), raises limits that are too small, and sets the settings
that the promise rests on. Receivers only check. It never moves replicas; it reports too few of them.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    KafkaError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    for_code,
)

from headrace_common.kafka.client import client_arguments, explain
from headrace_common.kafka.plan import HOUR_MS, UNLIMITED, TopicPlan
from headrace_common.operations import log
from headrace_common.operations.errors import EXIT_CONFIG, ConfigError, DeliveryError, DeliveryPolicy
from headrace_common.operations.settings import KafkaSettings, TopicSettings, TopicsProcessSettings, parse_arguments
from headrace_common.protocol import installed

BOUND: Final = 60.0
"""Seconds within which brokers must answer and new partitions must have a leader."""

_RAISED: Final = ("retention.ms", "retention.bytes", "max.message.bytes", "min.insync.replicas")
_TOPIC_OVERRIDE: Final = 1  # config_source of DescribeConfigs: set on the topic itself
_RETRY: Final = 0.3


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


def changes(wanted: Mapping[str, str], present: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings to change so that `present` meets `wanted`: limits are only raised, others are set as wanted.

    A setting that the broker does not report stays: the broker is too old to know it.
    """
    changed = {}
    for name, value in wanted.items():
        current = present.get(name)
        if current is None or current == value:
            continue
        if name in _RAISED and not _below(int(current), int(value)):
            continue
        changed[name] = value
    return changed


def _below(current: int, wanted: int) -> bool:
    return current != UNLIMITED and (wanted == UNLIMITED or current < wanted)


async def ensure(kafka: KafkaSettings, topics: TopicSettings, *, bound: float = BOUND) -> list[str]:
    """Makes the topics meet the settings and waits until every partition has a leader. Returns a line for each change.

    Waits for the brokers at most `bound` seconds, longer only inside a request. Raises `DeliveryError` if the brokers do not
    answer, refuse, or cannot hold the replicas; `ConfigError` if the CA cannot be read.
    """
    deadline = time.monotonic() + bound
    planned = plans(kafka, topics)
    if len({plan.name for plan in planned}) < len(planned):
        raise ConfigError(" and ".join(plan.setting for plan in planned) + " must differ")
    while True:
        admin = AIOKafkaAdminClient(**client_arguments(kafka))
        try:
            await asyncio.wait_for(admin.start(), max(1.0, deadline - time.monotonic()))
            return await _Admin(admin, deadline).ensure(planned, topics.replication)
        except (KafkaError, OSError, TimeoutError, AttributeError) as error:
            # AttributeError: aiokafka uses the controller's node before it knows which one that is.
            if not _passing(error):
                raise DeliveryError(explain(error), DeliveryPolicy.REFUSED) from error
            if time.monotonic() >= deadline:
                raise DeliveryError(
                    f"Kafka at {kafka.bootstrap_servers} did not do it within {bound:.0f} s: {explain(error)}",
                    DeliveryPolicy.RETRY,
                ) from error
        finally:
            await admin.close()
        await asyncio.sleep(_RETRY)


def _passing(error: BaseException) -> bool:
    """Returns whether the error may pass: brokers are starting, or do not all know the topic or its partitions yet."""
    settling = (UnknownTopicOrPartitionError, InvalidReplicationFactorError, InvalidPartitionsError)
    return not isinstance(error, KafkaError) or error.retriable or isinstance(error, settling)


class _Admin:
    """One attempt over one connection."""

    def __init__(self, client: AIOKafkaAdminClient, deadline: float) -> None:
        self._client = client
        self._deadline = deadline

    async def ensure(self, wanted: Sequence[TopicPlan], replication: int | None) -> list[str]:
        brokers = len((await self._client.describe_cluster())["brokers"])
        replicas = replication or (3 if brokers >= 3 else 1)
        done = []
        for plan in wanted:
            done += await self._create(plan, replicas)
            done += await self._grow(plan)
            done += await self._configure(plan, replicas)
        await self._wait_for_leaders(wanted)
        return done

    async def _create(self, plan: TopicPlan, replicas: int) -> list[str]:
        if await self._partitions(plan.name):
            return []
        topic = NewTopic(plan.name, plan.partitions, replicas, topic_configs=plan.for_replicas(replicas))
        response = await self._client.create_topics([topic])
        try:
            _check((code, message) for _, code, message in response.topic_errors)
        except TopicAlreadyExistsError:  # another process was faster, or this broker lacks its metadata yet
            await self._wait_for_leaders([plan])
            return []
        await self._wait_for_leaders([plan])
        return [f"{plan.name}: created, {plan.partitions} partitions, {replicas} replicas"]

    async def _grow(self, plan: TopicPlan) -> list[str]:
        present = len(await self._known(plan.name))
        if present >= plan.partitions or not plan.grows:
            return []
        await self._client.create_partitions({plan.name: NewPartitions(plan.partitions)})
        return [f"{plan.name}: {present} -> {plan.partitions} partitions"]

    async def _configure(self, plan: TopicPlan, replicas: int) -> list[str]:
        has = min(len(partition["replicas"]) for partition in await self._known(plan.name))
        entries = await self._configuration(plan.name)
        present = {name: value for name, (value, _) in entries.items()}
        changed = changes(plan.for_replicas(has), present)
        done = [f"{plan.name}: {name} {present[name]} -> {value}" for name, value in changed.items()]
        if changed:
            # AlterConfigs replaces the topic's whole configuration, so include what others have set.
            kept = {name: value for name, (value, source) in entries.items() if source == _TOPIC_OVERRIDE}
            resource = ConfigResource(ConfigResourceType.TOPIC, plan.name, {**kept, **changed})
            for response in await self._client.alter_configs([resource]):
                _check((item[0], item[1]) for item in response.resources)
        if has < replicas:
            done.append(f"{plan.name}: has {has} replicas instead of {replicas}; an operator must move replicas")
        return done

    async def _partitions(self, name: str) -> list[dict[str, Any]]:
        """Returns the topic's partitions; an empty list if the topic does not exist."""
        for topic in await self._client.describe_topics([name]):
            error = for_code(topic["error_code"])
            if error is UnknownTopicOrPartitionError:
                return []
            _check([(topic["error_code"], name)])
            return list(topic["partitions"])
        return []

    async def _known(self, name: str) -> list[dict[str, Any]]:
        """Returns the partitions of an existing topic. Each call may reach another broker, and one that lags does not know it."""
        partitions = await self._partitions(name)
        if not partitions:
            raise UnknownTopicOrPartitionError(name)
        return partitions

    async def _configuration(self, name: str) -> dict[str, tuple[str, int]]:
        """Returns every setting of the topic, with where it was set."""
        entries: dict[str, tuple[str, int]] = {}
        for response in await self._client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)]):
            _check((item[0], item[1]) for item in response.resources)
            for item in response.resources:
                entries.update({entry[0]: (entry[1], entry[3]) for entry in item[4]})
        return entries

    async def _wait_for_leaders(self, wanted: Sequence[TopicPlan]) -> None:
        for plan in wanted:
            while True:
                partitions = await self._partitions(plan.name)
                led = sum(partition["leader"] >= 0 for partition in partitions)
                if led >= plan.partitions or (partitions and led == len(partitions)):
                    break
                if time.monotonic() >= self._deadline:
                    raise DeliveryError(f"{plan.name}: {led} partitions have a leader", DeliveryPolicy.RETRY)
                await asyncio.sleep(_RETRY)


def _check(results: Any) -> None:
    for code, message in results:
        error = for_code(code)
        if code:
            raise error(message)


async def _make(settings: TopicsProcessSettings) -> list[str]:
    # It has a line for each failed attempt; `main` prints the last one.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    return await ensure(settings.kafka, settings.topics)


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the topics. Exit status 0: they meet the settings; 1: they could not be made; 78: the settings are wrong."""
    try:
        settings = parse_arguments(
            TopicsProcessSettings, "python -m headrace_common.topics", "Make the topics of Headrace.", argv
        )
        logger = log.configure(settings.log, "topics")
        done = asyncio.run(_make(settings))
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
