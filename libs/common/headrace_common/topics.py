"""Makes the topics that are missing: ``python -m headrace_common.topics``. It changes none that is there; receivers say what does
not keep the promise.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, LeaderNotAvailableError, UnknownTopicOrPartitionError

from headrace_common.kafka.client import NEEDED, NEEDED_WITHOUT_KEYS, check, client_arguments, explain
from headrace_common.operations import log
from headrace_common.operations.errors import EXIT_CONFIG, ConfigError, DeliveryError, DeliveryPolicy
from headrace_common.operations.settings import KafkaSettings, TopicSettings, TopicsProcessSettings, load
from headrace_common.protocol import TopicPlan, installed

BOUND: Final = 60.0
"""Seconds within which brokers must answer and new partitions must have a leader."""

HOUR_MS: Final = 3_600_000

ENSURE_PAUSE: Final = 0.1
"""Seconds between two tries."""


def plans(kafka: KafkaSettings, topics: TopicSettings) -> list[TopicPlan]:
    """Returns the plans of the events topic, the quarantine topic and those of the protocols that have topics of their own."""
    shared = {
        **NEEDED,
        **NEEDED_WITHOUT_KEYS,
        "max.message.bytes": str(topics.max_message_bytes),
        "retention.bytes": str(topics.retention_bytes),
        # The record's timestamp is the receive time, so Kafka must refuse it if a receiver's clock is wrong.
        "message.timestamp.before.max.ms": str(24 * HOUR_MS),
        "message.timestamp.after.max.ms": str(HOUR_MS),
    }
    records = (
        (kafka.events_topic, topics.events_partitions, topics.events_retention),
        (kafka.quarantine_topic, topics.quarantine_partitions, topics.quarantine_retention),
    )
    own = [protocol.topics(kafka, topics) for protocol in installed() if protocol.topics is not None]
    return [
        *(TopicPlan(name, number, {**shared, "retention.ms": str(kept * 1000)}) for name, number, kept in records),
        *itertools.chain.from_iterable(own),
    ]


async def ensure(kafka: KafkaSettings, topics: TopicSettings, *, bound: float = BOUND) -> list[str]:
    """Makes the topics that are missing, and waits until every partition has a leader. Returns a line for each that it made.

    Tries it for `bound` seconds, longer only inside a request: brokers start, or do not all know a topic yet. Raises
    `DeliveryError` if they do not answer, refuse, or cannot hold the replicas; `ConfigError` if the CA cannot be read.
    """
    deadline = time.monotonic() + bound
    planned = {plan.name: plan for plan in plans(kafka, topics)}
    done: list[str] = []
    while True:
        client = AIOKafkaAdminClient(**client_arguments(kafka))
        try:
            await asyncio.wait_for(client.start(), max(1.0, deadline - time.monotonic()))
            await _ensure(client, planned, topics.replication, done)
            return done
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
    client: AIOKafkaAdminClient, planned: Mapping[str, TopicPlan], replication: int | None, done: list[str]
) -> None:
    """Makes the topics that are missing, and adds a line for each to `done`.

    Raises `KafkaError`, also while brokers do not know yet what it has made: then it is called again.
    """
    replicas = replication or (3 if len((await client.describe_cluster())["brokers"]) >= 3 else 1)
    # With three replicas one may be down, and nothing is lost.
    of_three = {"min.insync.replicas": "2"} if replicas >= 3 else {}
    for topic in await client.describe_topics([*planned]):
        if topic["error_code"] == UnknownTopicOrPartitionError.errno:
            plan = planned[topic["topic"]]
            configuration = {**plan.configuration, **of_three}
            made = NewTopic(plan.name, plan.partitions, replicas, topic_configs=configuration)
            response = await client.create_topics([made])
            check((code, f"{name}: {message}") for name, code, message in response.topic_errors)
            done.append(f"{plan.name}: created, {plan.partitions} partitions, {replicas} replicas")
    for topic in await client.describe_topics([*planned]):
        check([(topic["error_code"], topic["topic"])])
        if min((partition["leader"] for partition in topic["partitions"]), default=-1) < 0:
            raise LeaderNotAvailableError(topic["topic"])


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the topics. Exit status 0: they are there; 1: they could not be made; 78: the settings are wrong."""
    argparse.ArgumentParser(prog="python -m headrace_common.topics", description="Make Headrace's topics.").parse_args(
        argv
    )
    try:
        settings = load(TopicsProcessSettings)
        logger = log.configure(settings.log, "topics")
        done = asyncio.run(ensure(settings.kafka, settings.topics))
    except (ConfigError, DeliveryError) as error:
        print(f"topics: {error}", file=sys.stderr)
        return EXIT_CONFIG if isinstance(error, ConfigError) else 1
    for line in done or ["nothing to do"]:
        logger.info(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
