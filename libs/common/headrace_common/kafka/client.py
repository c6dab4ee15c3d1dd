"""Makes Kafka clients, describes topics and says Kafka's errors."""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partialmethod
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.structs import TopicPartition
from typing_extensions import override

from headrace_common.kafka.tokens import shared_token
from headrace_common.operations.certificates import ReloadingContext, present, trust
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy
from headrace_common.operations.settings import SMALLEST_MESSAGE_BYTES, KafkaSettings

BROKER_DEFAULT_MESSAGE_BYTES: Final = 1_048_588
"""A broker's default `max.message.bytes`; assumed if we may not read the setting."""

NEEDED: Final = {"unclean.leader.election.enable": "false"}
NEEDED_WITHOUT_KEYS: Final = {"cleanup.policy": "delete", "message.timestamp.type": "CreateTime"}
"""Settings on which the promise rests: of every topic, and of those whose records have no keys and the time of their receipt."""

LEAST: Final = 1 << 10
"""A batch may have this many bytes, however little the topic takes."""


class InvalidRecordError(errors.BrokerResponseError):  # type: ignore[misc]  # aiokafka has no types
    """The broker rejects a record for its content (KIP-467). aiokafka has no class for it, and takes it for an unknown error."""

    errno = 87
    message = "INVALID_RECORD"
    description = "The broker has found a record of the batch to be invalid."


errors.kafka_errors.setdefault(InvalidRecordError.errno, InvalidRecordError)

# Where `auto.create.topics.enable` is on, as by default, aiokafka's requests make brokers create each topic that they name,
# a misspelt one, too, with one replica.
MetadataRequest.__init__ = partialmethod(MetadataRequest.__init__, allow_auto_topic_creation=False)


async def look(client: AIOKafkaClient, *about: Any, ask: Any = AIOKafkaClient._metadata_update) -> bool:
    """Asks for metadata as aiokafka does. If no known broker answers, asks those of KAFKA__BOOTSTRAP_SERVERS (KIP-899), since all
    brokers may have got other addresses.
    """
    if await ask(client, *about):
        return True
    with contextlib.suppress(Exception):
        await client.bootstrap()
        return bool(await ask(client, *about))
    return False


AIOKafkaClient._metadata_update = look


class _ConnectTrouble(logging.Filter):
    """Learns from aiokafka's log why a connection failed: its exception only says that no attempt succeeded. Drops these lines,
    one for each attempt: the caller that needs the connection reports the reason (`explain`).
    """

    reason = ""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        if not (str(record.msg).startswith("Unable connect to") and isinstance(record.args, tuple)):
            return True
        error = record.args[-1]
        refused = isinstance(error, ConnectionRefusedError)  # its text has the address, another one each time
        self.reason = "it refuses connections" if refused else str(error) or "it does not answer"
        return False


CONNECT_TROUBLE: Final = _ConnectTrouble()
logging.getLogger("aiokafka").addFilter(CONNECT_TROUBLE)


@lru_cache
def broker_tls(settings: KafkaSettings) -> ReloadingContext:
    """Returns the context of all connections to brokers with these settings. Reads files. Raises `ConfigError`."""

    def load() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trust(context, "KAFKA__CA", settings.ca)
        if settings.certificate is not None and settings.key is not None:
            present(context, ("KAFKA__CERTIFICATE", "KAFKA__KEY"), settings.certificate, settings.key)
        return context

    return ReloadingContext(load, settings.certificate, settings.key, settings.ca)


def client_arguments(settings: KafkaSettings) -> dict[str, Any]:
    """Returns the keyword arguments of every aiokafka client. Call it inside the event loop. Raises `ConfigError` for files that
    cannot be used.
    """
    arguments: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap_servers,
        "security_protocol": settings.security_protocol,
        "request_timeout_ms": int(settings.request_timeout * 1000),
        "metadata_max_age_ms": 60_000,
    }
    if settings.security_protocol.endswith("SSL"):
        arguments["ssl_context"] = broker_tls(settings)
    if settings.security_protocol.startswith("SASL"):
        arguments["sasl_mechanism"] = "OAUTHBEARER" if settings.by_iam else settings.sasl_mechanism
    if settings.by_iam or settings.by_token:
        arguments["sasl_oauth_token_provider"] = shared_token(settings)
    elif settings.security_protocol.startswith("SASL"):
        arguments["sasl_plain_username"] = settings.sasl_username
        arguments["sasl_plain_password"] = settings.sasl_password.get_secret_value()
    return arguments


def make_client(settings: KafkaSettings) -> AIOKafkaClient:
    """Makes a client for requests of one's own, not connected. Raises `ConfigError` for files that cannot be used."""
    return AIOKafkaClient(**client_arguments(settings))


def make_consumer(settings: KafkaSettings, **options: Any) -> AIOKafkaConsumer:
    """Makes a consumer that never commits by itself and stops at a gap, not started.

    `options` go to aiokafka and override ours. A fetch returns from one byte on: with aiokafka's usual wait for more, a read at
    a partition's end takes half a second.
    """
    arguments = {"enable_auto_commit": False, "auto_offset_reset": "none", "fetch_min_bytes": 1, **options}
    return AIOKafkaConsumer(**client_arguments(settings), **arguments)


@contextlib.asynccontextmanager
async def consuming(
    settings: KafkaSettings, places: Sequence[TopicPartition] = (), **options: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    """Starts a consumer of `places`, as `make_consumer` makes it, and closes it in the end. Raises `KafkaError`.

    Assigned after its start, a consumer learns of leaders by errors, and waits for a tenth of a second after each; and soon after
    that aiokafka's `stop` may wait for ever.
    """
    consumer = make_consumer(settings, **options)
    if places:
        consumer.assign(places)
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, as far as a receiver must know it. `weak`: settings that do not keep the promise on this cluster.

    `configuration`: the topic's settings; empty if we may not read them.
    """

    name: str
    partitions: int
    max_message_bytes: int
    weak: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)

    def batch_bytes(self, most: int) -> int:
        """Returns the largest batch before compression, `most` at most: three quarters of the topic's limit, so that it fits."""
        return min(most, max(LEAST, self.max_message_bytes * 3 // 4))


async def describe(settings: KafkaSettings, also: Sequence[str] = ()) -> list[Topic]:
    """Reads the events topic, the quarantine topic and those in `also` from Kafka, in this order.

    Waits for a few request timeouts at most. Raises `DeliveryError` (RETRY) if Kafka does not answer, refuses us or lacks a
    topic; the message says which.
    """
    admin = AIOKafkaAdminClient(**client_arguments(settings))
    try:
        await admin.start()
        names = [settings.events_topic, settings.quarantine_topic, *also]
        found = {entry["topic"]: entry for entry in await admin.describe_topics(names)}
        brokers = len((await admin.describe_cluster())["brokers"])
        topics = []
        for name in names:
            entry = found.get(name)
            if entry is None or entry["error_code"] or not entry["partitions"]:
                raise DeliveryError(
                    f"topic {name} is missing (python -m headrace_common.topics makes it), or Kafka does not let us see it"
                    " (grant this user DESCRIBE, DESCRIBE_CONFIGS and WRITE)",
                    DeliveryPolicy.RETRY,
                )
            configuration: dict[str, str] = {}
            with contextlib.suppress(KafkaError):  # we may not read it
                (told,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
                check(resource[:2] for resource in told.resources)
                configuration = {key: value for key, value, *_ in told.resources[0][4] if value is not None}
            topics.append(_topic(name, entry["partitions"], configuration, brokers, keys=name in also))
        return topics
    except (KafkaError, OSError) as error:
        raise DeliveryError(f"Kafka at {settings.bootstrap_servers}: {explain(error)}", DeliveryPolicy.RETRY) from error
    finally:
        await admin.close()


def check(results: Iterable[tuple[int, str]]) -> None:
    """Raises the `KafkaError` of the first of a broker's (code, message) that is none of success."""
    for code, message in results:
        if code:
            raise errors.for_code(code)(message)


def _topic(
    name: str, partitions: list[dict[str, Any]], configuration: dict[str, str], brokers: int, *, keys: bool
) -> Topic:
    most = int(configuration.get("max.message.bytes", BROKER_DEFAULT_MESSAGE_BYTES))
    needed = NEEDED if keys else {**NEEDED, **NEEDED_WITHOUT_KEYS}
    weak = [
        f"{setting} is {configuration[setting]} and must be {value}"
        for setting, value in needed.items()
        if configuration.get(setting, value) != value
    ]
    if brokers >= 3 and min(len(partition["replicas"]) for partition in partitions) < 3:
        weak.append("fewer than 3 replicas")
    if brokers >= 3 and int(configuration.get("min.insync.replicas", "2")) < 2:
        weak.append("min.insync.replicas below 2")
    if not keys and most < SMALLEST_MESSAGE_BYTES:
        weak.append(f"max.message.bytes below {SMALLEST_MESSAGE_BYTES}")
    return Topic(name, len(partitions), most, tuple(weak), configuration)


def explain(error: BaseException) -> str:
    """Says an aiokafka error in one line: of a connection, why it failed last."""
    text = str(error).strip() or type(error).__name__
    if ("Unable to bootstrap" in text or "not ready" in text) and CONNECT_TROUBLE.reason:
        return CONNECT_TROUBLE.reason
    return text if type(error).__name__ in text else f"{type(error).__name__}: {text}"
