"""Kafka as the landing job sees it: options for Spark's source, topic ids, offsets. Uses Kafka's Java client in the JVM."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus

from headrace_common.operations.certificates import present
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.settings import KafkaSettings
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from headrace_lake.spark.causes import chain, kafka_is_away, root_cause
from headrace_lake.spark.halt import HaltError, KafkaAwayError
from headrace_lake.spark.jvm import java_class

_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_BEARER: Final = "org.apache.kafka.common.security.oauthbearer"
_IAM: Final = {
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}
"""Options that AWS's `aws-msk-iam-auth` asks of a Java client; it finds credentials and region by itself."""
_LOGIN_TIME: Final = "10000"
"""Milliseconds that Kafka's client waits for a token endpoint."""
_ANSWER_TIME: Final = 10  # seconds to wait for one answer of the brokers: a running job's main loop waits meanwhile
_OFFSET_SPEC: Final = "org.apache.kafka.clients.admin.OffsetSpec"
_QUESTIONS: Final = 16  # kept: a running job asks for the same offsets again every few seconds


@dataclass(frozen=True)
class TopicInfo:
    """A topic: its id in Kafka, which is never reused, and its number of partitions."""

    id: str
    partitions: int


TopicPartition = tuple[str, int]

_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""A UUID of zeros, as Kafka's client writes it: the brokers have no ids of topics."""


def client_options(settings: KafkaSettings) -> dict[str, str]:
    """Returns the options of Kafka's Java client for `settings`. Raises `ConfigError` for files that cannot be used.

    The contents of the files go into the options, for executors that do not have them.
    """
    options = {
        "bootstrap.servers": settings.bootstrap_servers,
        "security.protocol": settings.security_protocol,
    }
    if settings.by_iam:
        options.update(_IAM)
    elif settings.by_token:
        options.update(_token_options(settings))
    elif settings.security_protocol.startswith("SASL"):
        module = "plain.Plain" if settings.sasl_mechanism == "PLAIN" else "scram.Scram"
        user, password = _quoted(settings.sasl_username), _quoted(settings.sasl_password.get_secret_value())
        options["sasl.mechanism"] = settings.sasl_mechanism
        options["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module}LoginModule required username={user} password={password};"
        )
    if settings.ca is not None and settings.security_protocol.endswith("SSL"):
        options["ssl.truststore.type"] = "PEM"
        options["ssl.truststore.certificates"] = _certificates("KAFKA__CA", settings.ca)
    if settings.certificate is not None and settings.key is not None:
        options.update(_key_store(settings.certificate, settings.key))
    return options


def _token_options(settings: KafkaSettings) -> dict[str, str]:
    """Returns the options with which Kafka's Java client fetches tokens by itself. The options for TLS with the endpoint are
    among those of its login.
    """
    pair = (settings.oauth_client_id, settings.oauth_client_secret.get_secret_value())
    login = {"clientId": pair[0], "clientSecret": pair[1]}
    if settings.oauth_scope:
        login["scope"] = settings.oauth_scope
    if settings.oauth_ca is not None:
        login["ssl.truststore.type"] = "PEM"
        login["ssl.truststore.certificates"] = _certificates("KAFKA__OAUTH_CA", settings.oauth_ca)
    words = " ".join(f"{name}={_quoted(value)}" for name, value in login.items())
    return {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{_BEARER}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": settings.oauth_endpoint,
        "sasl.oauthbearer.header.urlencode": str(any(quote_plus(word) != word for word in pair)).lower(),
        "sasl.login.connect.timeout.ms": _LOGIN_TIME,
        "sasl.login.read.timeout.ms": _LOGIN_TIME,
        "sasl.jaas.config": f"{_BEARER}.OAuthBearerLoginModule required {words};",
    }


def _key_store(certificate: Path, key: Path) -> dict[str, str]:
    """Returns the options with the certificate to show to brokers. Java reads a key only in PKCS#8."""
    from cryptography.hazmat.primitives import serialization  # megabytes that most jobs do not need

    settings = ("KAFKA__CERTIFICATE", "KAFKA__KEY")
    present(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), settings, certificate, key)  # raises with the reason
    plain = serialization.load_pem_private_key(key.read_bytes(), None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": _certificates(settings[0], certificate),
        "ssl.keystore.key": plain.decode().strip(),
    }


def _certificates(setting: str, path: Path) -> str:
    """Returns the certificates in the file: other text between them is left out."""
    try:
        found = _CERTIFICATE.findall(path.read_text(errors="replace"))
    except OSError as error:
        raise ConfigError(f"{setting} {path}: {error.strerror}") from error
    if not found:
        raise ConfigError(f"{setting} {path} has no certificate in PEM in it")
    return "\n".join(found)


_FETCH_WAIT: Final = "10"
"""Milliseconds that a broker waits for new records. Spark reads only existing records, but its consumer also asks for more after
them. The second read of a partition (for a batch's quarantine) then waits for that answer: by default, half a second each."""


_FETCHED: Final = 64 << 20
"""Bytes that Spark's consumers, one for each partition, may hold unread, about; Kafka's usual limit for one is 1 MiB."""


def _fetch_bytes(partitions: int) -> int:
    """Returns the most that one answer of a broker holds of a partition; a larger record comes nevertheless, alone."""
    return max(128 << 10, min(1 << 20, _FETCHED // max(1, partitions)))


def source_options(settings: KafkaSettings, starting: Mapping[str, Mapping[str, int]], most: int) -> dict[str, str]:
    """Returns options for Spark's Kafka source: both topics from `starting`, at most `most` records in a batch."""
    return {
        **{f"kafka.{name}": value for name, value in client_options(settings).items()},
        "kafka.allow.auto.create.topics": "false",
        "kafka.isolation.level": "read_committed",  # records of aborted transactions do not count
        "kafka.fetch.max.wait.ms": _FETCH_WAIT,
        "kafka.max.partition.fetch.bytes": str(_fetch_bytes(sum(map(len, starting.values())))),
        "subscribe": f"{settings.events_topic},{settings.quarantine_topic}",
        "includeHeaders": "true",
        "startingOffsets": json.dumps(starting),
        "maxOffsetsPerTrigger": str(most),
        "failOnDataLoss": "true",
    }


def delay_options(delay: float, least: int) -> dict[str, str]:
    """Returns options by which a batch waits until it has `least` records, or for `delay` seconds since the last one."""
    return {"minOffsetsPerTrigger": str(least), "maxTriggerDelay": f"{delay * 1000:.0f}ms"} if delay else {}


def range_options(settings: KafkaSettings, ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[str, str]:
    """Returns options for one bounded read of `ranges`: partition -> first offset, and one past the last."""
    assigned: dict[str, list[int]] = {}
    ends: tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]] = ({}, {})
    for (topic, partition), pair in ranges.items():
        assigned.setdefault(topic, []).append(partition)
        for side, offset in zip(ends, pair, strict=True):
            side.setdefault(topic, {})[str(partition)] = offset
    options = source_options(settings, ends[0], 1)
    for name in ("subscribe", "maxOffsetsPerTrigger"):
        del options[name]
    return {
        **options,
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(ends[0]),
        "endingOffsets": json.dumps(ends[1]),
    }


class Brokers:
    """Asks the brokers. Every call blocks for up to `_ANSWER_TIME` seconds; raises `KafkaAwayError` if none answers."""

    def __init__(self, spark: SparkSession, settings: KafkaSettings) -> None:
        self._class = partial(java_class, spark)
        self._settings = settings
        self._admin: Any = None
        self._question = lru_cache(maxsize=_QUESTIONS)(self._asked)

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Returns the topics among `names` that exist.

        Raises `HaltError` if Kafka refuses to describe them, `ConfigError` if its brokers give topics no ids.
        """
        found = {}
        answers = self._client().describeTopics(list(names)).topicNameValues()
        for name in names:
            try:
                description = self._wait(answers.get(name))
            except _UnknownTopicError:
                continue
            topic_id = description.topicId().toString()
            if topic_id == _NO_ID:
                raise ConfigError(
                    f"the brokers at {self._settings.bootstrap_servers} give the topic {name} no id: they are older than Kafka"
                    " 2.8, or only claim to be Kafka. Without ids a topic that is recreated cannot be told from the old one,"
                    " so records would be lost or doubled: this job needs brokers with topic ids"
                )
            found[name] = TopicInfo(topic_id, description.partitions().size())
        return found

    def offsets(
        self, partitions: Iterable[TopicPartition], *, earliest: bool, committed: bool = True
    ) -> dict[TopicPartition, int]:
        """Returns the first offset that Kafka holds (`earliest`), or one past the last that a reader sees; `committed`: of
        committed records alone.
        """
        levels = self._class("org.apache.kafka.common.IsolationLevel")
        level = levels.READ_COMMITTED if committed else levels.READ_UNCOMMITTED
        options = self._class("org.apache.kafka.clients.admin.ListOffsetsOptions")(level)
        question, places = self._question(tuple(partitions), "earliest" if earliest else "latest")
        try:
            answers = self._wait(self._client().listOffsets(question, options).all())
        except _UnknownTopicError as error:
            raise KafkaAwayError("a topic was deleted or recreated while its offsets were asked for") from error
        return {pair: answers.get(place).offset() for pair, place in places.items()}

    def _asked(self, pairs: tuple[TopicPartition, ...], spec: str) -> tuple[Any, dict[TopicPartition, Any]]:
        """Returns the map of partitions and what is asked of each, as Kafka's client takes it, and the partitions as it does: a
        call to the JVM for each. `spec`: which offset, by the name of Kafka's client.
        """
        place, asked = self._class("org.apache.kafka.common.TopicPartition"), getattr(self._class(_OFFSET_SPEC), spec)()
        places = {pair: place(*pair) for pair in pairs}
        made = self._class("java.util.HashMap")()
        for each in places.values():
            made.put(each, asked)
        return made, places

    def commit(self, group: str, ends: Mapping[TopicPartition, int]) -> None:
        """Commits `ends` as the offsets of the consumer group. Raises `HaltError` if Kafka refuses it."""
        offsets = self._class("java.util.HashMap")()
        place = self._class("org.apache.kafka.common.TopicPartition")
        following = self._class("org.apache.kafka.clients.consumer.OffsetAndMetadata")
        for pair, end in ends.items():
            offsets.put(place(*pair), following(end))
        try:
            self._wait(self._client().alterConsumerGroupOffsets(group, offsets).all())
        except _UnknownTopicError as error:
            raise KafkaAwayError("a topic was deleted or recreated while its offsets were committed") from error

    def close(self) -> None:
        """Closes the connections."""
        if self._admin is not None:
            self._admin.close(self._class("java.time.Duration").ofSeconds(1))
            self._admin = None

    def _client(self) -> Any:
        if self._admin is None:
            create = self._class("org.apache.kafka.clients.admin.AdminClient").create
            try:
                self._admin = create(client_options(self._settings))
            except Py4JJavaError as error:
                # no broker has an address, or nobody gives us a token
                kind = KafkaAwayError if kafka_is_away(" | ".join(chain(error))) else HaltError
                raise kind(f"Kafka's client does not start: {root_cause(error)}") from error
        return self._admin

    def _wait(self, future: Any) -> Any:
        try:
            return future.get(_ANSWER_TIME, self._class("java.util.concurrent.TimeUnit").SECONDS)
        except Py4JJavaError as error:
            cause = root_cause(error)
            if "UnknownTopicOrPartitionException" in cause or "UnknownTopicIdException" in cause:
                raise _UnknownTopicError(cause) from error
            if kafka_is_away(" | ".join(chain(error))) or "TimeoutException" in cause:
                raise KafkaAwayError(f"Kafka at {self._settings.bootstrap_servers} does not answer") from error
            raise HaltError(f"Kafka at {self._settings.bootstrap_servers} refuses: {cause}") from error


class _UnknownTopicError(Exception):
    pass


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
