"""Keeps a producer to the cluster that gave it its identity.

A new cluster at the same address numbers its producers from the beginning. It takes a batch of one producer for a batch of
another with the same number that it has stored already, confirms it, and stores nothing (seen with Kafka 4.1).
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.protocol.metadata import MetadataRequest


class AnotherClusterError(KafkaError):  # type: ignore[misc]  # aiokafka has no types
    """Another cluster answers where the producer's own was. The producer fails all that it has, and sends nothing more."""


def keep_to_one(producer: AIOKafkaProducer) -> None:
    """Makes `producer`, which has not started, ask on each new connection which cluster it leads to, before it sends there."""
    client, connect = producer.client, producer.client._get_conn
    known: WeakSet[Any] = WeakSet()  # connections to its own cluster
    own: str | None = None

    async def connected(*where: Any, **options: Any) -> Any:
        nonlocal own
        connection = await connect(*where, **options)
        if connection is None or connection in known:
            return connection
        try:
            answer = await connection.send(MetadataRequest([]))
        except (KafkaError, TimeoutError):
            connection.close()
            return None
        found = getattr(answer, "cluster_id", None)  # old brokers do not say
        own = own or found
        if found != own:
            connection.close()
            producer._message_accumulator.fail_all(
                AnotherClusterError(f"the cluster {found} answers in place of {own}")
            )
            return None
        known.add(connection)
        return connection

    client._get_conn = connected
