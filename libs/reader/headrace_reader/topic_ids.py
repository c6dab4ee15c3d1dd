"""Asks Kafka for the ids of topics, which aiokafka's own requests leave out: a topic that is made again has another one."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from aiokafka.errors import NoError, UnknownTopicOrPartitionError, UnsupportedVersionError, for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields
from headrace_common.kafka.client import make_client
from headrace_common.operations.settings import KafkaSettings
from typing_extensions import override

_TEXT: Final = CompactString("utf-8")
_TAGS: Final = ("tags", TaggedFields)
_ID: Final = (("id_high", Int64), ("id_low", Int64))
"""The two halves of a UUID."""
_NUMBERS: Final = CompactArray(Int32)
_PARTITION: Final = (
    ("error_code", Int16), ("partition", Int32), ("leader", Int32), ("leader_epoch", Int32), ("replicas", _NUMBERS),
    ("isr", _NUMBERS), ("offline_replicas", _NUMBERS), _TAGS,
)  # fmt: skip
_TOPIC: Final = (
    ("error_code", Int16), ("name", _TEXT), *_ID, ("is_internal", Boolean), ("partitions", CompactArray(*_PARTITION)),
    ("authorized_operations", Int32), _TAGS,
)  # fmt: skip
_BROKER: Final = (("node_id", Int32), ("host", _TEXT), ("port", Int32), ("rack", _TEXT), _TAGS)


class _TopicsResponse(Response):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 3
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32), ("brokers", CompactArray(*_BROKER)), ("cluster_id", _TEXT), ("controller_id", Int32),
        ("topics", CompactArray(*_TOPIC)), ("authorized_operations", Int32), _TAGS,
    )  # fmt: skip


class _TopicsRequestStruct(RequestStruct):  # type: ignore[misc]
    """`Metadata` in version 10, of Kafka 2.8: the first whose answer has ids (KIP-516)."""

    API_KEY = 3
    API_VERSION = 10
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _TopicsResponse
    SCHEMA = Schema(
        ("topics", CompactArray(*_ID, ("name", _TEXT), _TAGS)), ("allow_auto_topic_creation", Boolean),
        ("cluster_operations", Boolean), ("topic_operations", Boolean), _TAGS,
    )  # fmt: skip


class _TopicsRequest(Request[_TopicsRequestStruct]):  # type: ignore[misc]
    API_KEY = 3

    def __init__(self, names: Iterable[str]) -> None:
        self._topics: list[Any] = [(0, 0, name, {}) for name in names]

    @override
    def build(self, request_struct_class: type[_TopicsRequestStruct]) -> Any:
        return request_struct_class(self._topics, False, False, False, {})


class KnownTopic(NamedTuple):
    """A topic's id, as Kafka's own tools write it, and its partitions."""

    id: str
    partitions: tuple[int, ...]


async def known_topics(settings: KafkaSettings, names: Iterable[str]) -> dict[str, KnownTopic]:
    """Returns what Kafka says of those topics that exist, by name. May wait for a few request timeouts.

    Raises `KafkaError`: `UnsupportedVersionError` if the brokers are older than Kafka 2.8.
    """
    client = make_client(settings)
    try:
        await client.bootstrap()
        answer = await client.send(client.get_random_node(), _TopicsRequest(names))
    except NotImplementedError as old:
        raise UnsupportedVersionError("these brokers give topics no ids") from old
    finally:
        await client.close()
    found = {}
    for code, name, high, low, _, partitions, *_ in answer.topics:
        if (error := for_code(code)) is UnknownTopicOrPartitionError:
            continue
        if error is not NoError:
            raise error(name)
        topic_id = base64.urlsafe_b64encode(struct.pack(">qq", high, low)).decode().rstrip("=")
        found[name] = KnownTopic(topic_id, tuple(sorted(each[1] for each in partitions)))
    return found
