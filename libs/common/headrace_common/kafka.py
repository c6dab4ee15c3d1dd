"""How Kafka is spoken to, and what its topics allow."""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from headrace_common.errors import ConfigError, DeliveryError
from headrace_common.settings import KafkaSettings

BROKER_DEFAULT_MESSAGE_BYTES: Final = 1_048_588
"""`max.message.bytes` of a broker that was not told otherwise; assumed where reading it is not allowed."""


HINTS: Final = (
    ("SaslAuthenticationFailed", "KAFKA__SASL_USERNAME and KAFKA__SASL_PASSWORD are not what the broker knows"),
    ("UnsupportedSaslMechanism", "KAFKA__SASL_MECHANISM is none of the broker's"),
    ("CERTIFICATE_VERIFY_FAILED", "KAFKA__CA is not the CA of the brokers"),
    ("WRONG_VERSION_NUMBER", "KAFKA__SECURITY_PROTOCOL asks for TLS, which is not spoken there"),
    ("closed", "perhaps KAFKA__SECURITY_PROTOCOL is not what is spoken there"),
)
"""What to look at, by a word of the reason why a connection to a broker failed."""


class _ConnectTrouble(logging.Filter):
    """Learns from aiokafka's log why a connection failed: its exception only says that none succeeded.

    While somebody is about to tell of it in a line of our own (`silent`), aiokafka's, one for each attempt, are left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reason = ""
        self.silent = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if str(record.msg).startswith("Unable connect to") and isinstance(record.args, tuple) and record.args:
            self.reason = str(record.args[-1])
            return not self.silent
        return True

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Whatever goes wrong in here is told by whoever calls."""
        self.reason = ""
        self.silent += 1
        try:
            yield
        finally:
            self.silent -= 1


CONNECT_TROUBLE: Final = _ConnectTrouble()
logging.getLogger("aiokafka").addFilter(CONNECT_TROUBLE)


def client_arguments(settings: KafkaSettings) -> dict[str, Any]:
    """Keyword arguments of every aiokafka client. Raises `ConfigError` when the CA cannot be read."""
    arguments: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap_servers,
        "security_protocol": settings.security_protocol,
        "request_timeout_ms": int(settings.request_timeout * 1000),
    }
    if settings.security_protocol.endswith("SSL"):
        try:
            arguments["ssl_context"] = ssl.create_default_context(cafile=settings.ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"KAFKA__CA {settings.ca}: {error}") from error
    if settings.security_protocol.startswith("SASL"):
        arguments["sasl_mechanism"] = settings.sasl_mechanism
        arguments["sasl_plain_username"] = settings.sasl_username
        arguments["sasl_plain_password"] = settings.sasl_password.get_secret_value()
    return arguments


def make_producer(settings: KafkaSettings, batch_bytes: int) -> AIOKafkaProducer:
    """An idempotent producer with acks=all and zstd, not started. `batch_bytes`: largest batch before compression.

    zstd, because aiokafka's lz4 and gzip are fixed at level 9 and cost seven times as much.
    """
    return AIOKafkaProducer(
        **client_arguments(settings),
        enable_idempotence=True,
        acks="all",
        compression_type="zstd",
        max_batch_size=batch_bytes,
        linger_ms=0,
        metadata_max_age_ms=60_000,
    )


@dataclass(frozen=True, slots=True)
class Topic:
    """What a receiver must know of a topic. `weak`: settings that do not keep the promise on this cluster."""

    name: str
    partitions: int
    max_message_bytes: int
    weak: tuple[str, ...] = ()


async def describe(settings: KafkaSettings) -> tuple[Topic, Topic]:
    """The events and the quarantine topic as Kafka has them. Waits for at most a few request time-outs.

    Raises `DeliveryError` (retriable) when Kafka does not answer, refuses us, or a topic is missing: the message says which.
    """
    admin = AIOKafkaAdminClient(**client_arguments(settings))
    try:
        with CONNECT_TROUBLE.told():
            await admin.start()
        names = [settings.events_topic, settings.quarantine_topic]
        found = {entry["topic"]: entry for entry in await admin.describe_topics(names)}
        brokers = len((await admin.describe_cluster())["brokers"])
        topics = []
        for name in names:
            entry = found.get(name)
            if entry is None or entry["error_code"] or not entry["partitions"]:
                raise DeliveryError(
                    f"topic {name} is missing (python -m headrace_common.topics makes it)", retriable=True
                )
            configuration = await _configuration(admin, name)
            topics.append(_topic(name, entry["partitions"], configuration, brokers))
        return topics[0], topics[1]
    except (KafkaError, OSError) as error:
        raise DeliveryError(f"Kafka at {settings.bootstrap_servers}: {explain(error)}", retriable=True) from error
    finally:
        await admin.close()


async def _configuration(admin: AIOKafkaAdminClient, name: str) -> dict[str, str]:
    """The topic's configuration; empty when we may not read it."""
    try:
        responses = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
    except KafkaError:
        return {}
    entries: dict[str, str] = {}
    for response in responses:
        for resource in response.resources:
            entries.update({entry[0]: entry[1] for entry in resource[4]})
    return entries


def _topic(name: str, partitions: list[dict[str, Any]], configuration: dict[str, str], brokers: int) -> Topic:
    weak = []
    if brokers >= 3:
        if min(len(partition["replicas"]) for partition in partitions) < 3:
            weak.append("fewer than 3 replicas")
        if int(configuration.get("min.insync.replicas", "2")) < 2:
            weak.append("min.insync.replicas below 2")
    if configuration.get("unclean.leader.election.enable") == "true":
        weak.append("unclean leader election is on")
    if "compact" in configuration.get("cleanup.policy", ""):
        weak.append("it is compacted, but records have no key")
    return Topic(
        name,
        len(partitions),
        int(configuration.get("max.message.bytes", BROKER_DEFAULT_MESSAGE_BYTES)),
        tuple(weak),
    )


def explain(error: BaseException) -> str:
    """An aiokafka error in one line, with what to look at where that is known."""
    text = str(error).strip() or type(error).__name__
    if "Unable to bootstrap" in text and CONNECT_TROUBLE.reason:
        text = CONNECT_TROUBLE.reason.partition(" (_ssl.c")[0]
        hint = next((hint for word, hint in HINTS if word in text), None)
        return text if hint is None else f"{text} ({hint})"
    return text if type(error).__name__ in text else f"{type(error).__name__}: {text}"
