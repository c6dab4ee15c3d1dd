"""Makes the topics: ``python -m headrace_common.topics``. May be run at any time; nothing that exists is made smaller.

What is missing is created, partitions are added, limits that are too small are raised, and the settings that the promise
rests on are set. Receivers only check. Replicas are never moved: too few of them are reported.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

from headrace_common import log
from headrace_common.errors import EXIT_CONFIG, ConfigError, DeliveryError
from headrace_common.kafka import client_arguments, explain
from headrace_common.settings import KafkaSettings, TopicSettings, TopicsProcessSettings, parse_arguments

BOUND: Final = 60.0
"""Seconds that the brokers get to answer, and new partitions to have a leader."""

UNLIMITED: Final = -1
_RAISED: Final = ("retention.ms", "retention.bytes", "max.message.bytes", "min.insync.replicas")
_TOPIC_OVERRIDE: Final = 1  # config_source of DescribeConfigs: set on the topic itself
_HOUR_MS: Final = 3_600_000
_RETRY: Final = 0.3


@dataclass(frozen=True)
class TopicPlan:
    """A topic as it should be at least. `configuration` without what depends on its replicas (`for_replicas`)."""

    name: str
    partitions: int
    configuration: Mapping[str, str]

    def for_replicas(self, replicas: int) -> dict[str, str]:
        """The configuration of a topic with so many replicas: with three, one may be away and nothing is lost."""
        return {**self.configuration, **({"min.insync.replicas": "2"} if replicas >= 3 else {})}


def plans(kafka: KafkaSettings, topics: TopicSettings) -> list[TopicPlan]:
    """The events and the quarantine topic."""
    shared = {
        "cleanup.policy": "delete",
        "max.message.bytes": str(topics.max_message_bytes),
        "retention.bytes": str(topics.retention_bytes),
        "unclean.leader.election.enable": "false",
        # the record's timestamp is the receive time; a receiver whose clock is wrong must be told
        "message.timestamp.type": "CreateTime",
        "message.timestamp.before.max.ms": str(24 * _HOUR_MS),
        "message.timestamp.after.max.ms": str(_HOUR_MS),
    }
    return [
        TopicPlan(
            kafka.events_topic,
            topics.events_partitions,
            {**shared, "retention.ms": str(topics.events_retention * 1000)},
        ),
        TopicPlan(
            kafka.quarantine_topic,
            topics.quarantine_partitions,
            {**shared, "retention.ms": str(topics.quarantine_retention * 1000)},
        ),
    ]


def changes(wanted: Mapping[str, str], present: Mapping[str, str]) -> dict[str, str]:
    """What has to be set so that `present` is as `wanted`: limits are only raised, the rest is set as it should be.

    A setting that the broker does not report is left alone: it is too old to know it.
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
    """Bring both topics to what the settings ask and wait until every partition has a leader; a line for each change.

    Waits at most `bound` seconds for the brokers, more only while a request is answered. Raises `DeliveryError`: the
    brokers did not answer, refuse, or cannot hold the replicas; `ConfigError`: the CA cannot be read.
    """
    deadline = time.monotonic() + bound
    if kafka.events_topic == kafka.quarantine_topic:
        raise ConfigError("KAFKA__EVENTS_TOPIC and KAFKA__QUARANTINE_TOPIC must differ")
    while True:
        admin = AIOKafkaAdminClient(**client_arguments(kafka))
        try:
            await asyncio.wait_for(admin.start(), max(1.0, deadline - time.monotonic()))
            return await _Admin(admin, deadline).ensure(plans(kafka, topics), topics.replication)
        except (KafkaError, OSError, TimeoutError, AttributeError) as error:
            # AttributeError: aiokafka asks for the controller's node before it is known which one that is
            if not _passing(error):
                raise DeliveryError(explain(error), retriable=False) from error
            if time.monotonic() >= deadline:
                raise DeliveryError(
                    f"Kafka at {kafka.bootstrap_servers} did not do it within {bound:.0f} s: {explain(error)}",
                    retriable=True,
                ) from error
        finally:
            await admin.close()
        await asyncio.sleep(_RETRY)


def _passing(error: BaseException) -> bool:
    """Whether time may cure it: brokers that start, a topic or its partitions that are not known everywhere yet."""
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
        except TopicAlreadyExistsError:  # somebody else was faster, or its metadata is not here yet
            await self._wait_for_leaders([plan])
            return []
        await self._wait_for_leaders([plan])
        return [f"{plan.name}: created, {plan.partitions} partitions, {replicas} replicas"]

    async def _grow(self, plan: TopicPlan) -> list[str]:
        present = len(await self._known(plan.name))
        if present >= plan.partitions:
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
            # AlterConfigs replaces all that is set on the topic: what somebody else has set goes along
            kept = {name: value for name, (value, source) in entries.items() if source == _TOPIC_OVERRIDE}
            resource = ConfigResource(ConfigResourceType.TOPIC, plan.name, {**kept, **changed})
            for response in await self._client.alter_configs([resource]):
                _check((item[0], item[1]) for item in response.resources)
        if has < replicas:
            done.append(f"{plan.name}: has {has} replicas, {replicas} are wanted; moving replicas is the operator's")
        return done

    async def _partitions(self, name: str) -> list[dict[str, Any]]:
        """The topic's partitions; none if there is no such topic."""
        for topic in await self._client.describe_topics([name]):
            error = for_code(topic["error_code"])
            if error is UnknownTopicOrPartitionError:
                return []
            _check([(topic["error_code"], name)])
            return list(topic["partitions"])
        return []

    async def _known(self, name: str) -> list[dict[str, Any]]:
        """As `_partitions`, of a topic that exists: each call may reach another broker, and one that lags lacks it."""
        partitions = await self._partitions(name)
        if not partitions:
            raise UnknownTopicOrPartitionError(name)
        return partitions

    async def _configuration(self, name: str) -> dict[str, tuple[str, int]]:
        """Every setting of the topic with where it was set."""
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
                    raise DeliveryError(f"{plan.name}: {led} partitions have a leader", retriable=True)
                await asyncio.sleep(_RETRY)


def _check(results: Any) -> None:
    for code, message in results:
        error = for_code(code)
        if code:
            raise error(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0: the topics are as they should be; 1: they could not be made; 78: the settings are wrong."""
    try:
        settings = parse_arguments(
            TopicsProcessSettings, "python -m headrace_common.topics", "Make the topics of Headrace.", argv
        )
        logger = log.configure(settings.log, "topics")
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # its every failed attempt; the last one is told below
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
