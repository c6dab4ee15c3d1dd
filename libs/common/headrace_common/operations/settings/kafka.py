"""The sections about Kafka: how to reach it, and what its topics are."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from headrace_common.operations.networks import Brokers
from headrace_common.operations.variables import KIB, MIB, Bytes, Seconds, Section, WholeSeconds

SMALLEST_MESSAGE_BYTES: Final = 64 * KIB  # of `max.message.bytes`: a part of a reject has its frame's options


class KafkaSettings(Section):
    """How to reach Kafka, and how long to wait for it."""

    batch_bytes: ClassVar[int] = 1 * MIB  # before compression; larger batches store no faster, and hold more for longer

    bootstrap_servers: Brokers = Field("localhost:9092", description="Brokers, `host:port`, separated by commas.")
    events_topic: str = Field("headrace.events", description="Topic for events.")
    quarantine_topic: str = Field("headrace.quarantine", description="Topic for what could not be understood.")
    segments_topic: str = Field(
        "headrace.segments", description="Topic that holds the segments of the segment service."
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="Security protocol, as in every Kafka client."
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"] = Field(
        "SCRAM-SHA-512", description="SASL mechanism, for a SASL protocol; AWS_MSK_IAM: Amazon MSK's own login."
    )
    sasl_username: str = Field("", description="User name, for a SASL protocol.")
    sasl_password: SecretStr = Field(SecretStr(""), description="Password, for a SASL protocol; prefer `…_FILE`.")
    oauth_endpoint: str = Field(
        "", description="URL where OAUTHBEARER's tokens come from, by the grant `client_credentials`."
    )
    oauth_client_id: str = Field("", description="Client id, for OAUTHBEARER.")
    oauth_client_secret: SecretStr = Field(SecretStr(""), description="Secret, for OAUTHBEARER; prefer `…_FILE`.")
    oauth_scope: str = Field("", description="Scope to ask for, with OAUTHBEARER; default: the endpoint's own.")
    oauth_ca: Path | None = Field(
        None, description="PEM file of the CA that signed the endpoint's certificate; default: the system's."
    )
    ca: Path | None = Field(
        None, description="PEM file of the CA that signed the brokers' certificates; default: the system's."
    )
    certificate: Path | None = Field(
        None, description="PEM file with the certificate and its chain for brokers that ask for one."
    )
    key: Path | None = Field(None, description="PEM file with the certificate's private key, unencrypted.")
    ack_deadline: Seconds = Field(
        300, gt=0, description="How long a frame may wait for Kafka; then its connection closes."
    )
    request_timeout: Seconds = Field(  # Kafka's field: 32 bits of milliseconds. Users who mean these write 30,000
        30, ge=1, le=3_600, description="Time for a request to a broker; then it is sent again."
    )

    @model_validator(mode="after")
    def _access(self) -> Self:
        topics = (self.events_topic, self.quarantine_topic, self.segments_topic)
        if len({*topics}) < len(topics):
            raise ValueError("KAFKA__EVENTS_TOPIC, QUARANTINE_TOPIC, SEGMENTS_TOPIC: two are the same")
        if self.oauth_endpoint and not self.by_token:
            raise ValueError("KAFKA__OAUTH_ENDPOINT needs KAFKA__SASL_MECHANISM OAUTHBEARER and a SASL protocol")
        secret = self.oauth_client_secret.get_secret_value()
        if self.by_token and not (self.oauth_endpoint and self.oauth_client_id and secret):
            raise ValueError("OAUTHBEARER needs OAUTH_ENDPOINT, OAUTH_CLIENT_ID and OAUTH_CLIENT_SECRET")
        if self.by_iam and self.security_protocol != "SASL_SSL":  # anybody who sees a token may use it
            raise ValueError("AWS_MSK_IAM needs KAFKA__SECURITY_PROTOCOL SASL_SSL")
        password = self.sasl_username and self.sasl_password.get_secret_value()
        if self.security_protocol.startswith("SASL") and not (self.by_token or self.by_iam or password):
            raise ValueError("a SASL security protocol needs SASL_USERNAME and SASL_PASSWORD")
        if (self.certificate is None) != (self.key is None):
            raise ValueError("KAFKA__CERTIFICATE and KAFKA__KEY go together")
        for name in ("certificate", "ca"):  # one that has no effect would leave the connection open to all
            if getattr(self, name) is not None and not self.security_protocol.endswith("SSL"):
                raise ValueError(f"KAFKA__{name.upper()} needs KAFKA__SECURITY_PROTOCOL SSL or SASL_SSL")
        if password and not self.security_protocol.startswith("SASL"):
            raise ValueError("KAFKA__SASL_PASSWORD needs KAFKA__SECURITY_PROTOCOL SASL_SSL or SASL_PLAINTEXT")
        return self

    @property
    def by_token(self) -> bool:
        """Whether this process logs in by a token from an endpoint."""
        return self.security_protocol.startswith("SASL") and self.sasl_mechanism == "OAUTHBEARER"

    @property
    def by_iam(self) -> bool:
        """Whether this process logs in by its identity at AWS."""
        return self.security_protocol.startswith("SASL") and self.sasl_mechanism == "AWS_MSK_IAM"

    @field_validator("oauth_endpoint")
    @classmethod
    def _endpoint(cls, url: str) -> str:
        parts = urlsplit(url)
        if url and (parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None):
            raise ValueError("not a URL such as https://login.example.org/token, with no user in it")
        return url


class TopicSettings(Section):
    """How `python -m headrace_common.topics` creates the topics that are missing. It changes none."""

    quarantine_partitions: ClassVar[int] = 3  # little goes there, and no order counts

    events_partitions: int = Field(12, ge=1, description="Number of partitions of the events topic.")
    events_retention: WholeSeconds = Field(7 * 86_400, ge=60, description="Seconds that Kafka keeps events.")
    quarantine_retention: WholeSeconds = Field(
        30 * 86_400, ge=60, description="Seconds that Kafka keeps quarantined records."
    )
    segments_partitions: int = Field(
        1, ge=0, le=1, description="Number of partitions of the segments topic: 1; 0: it is not made."
    )
    replication: int | None = Field(
        None, ge=1, description="Number of replicas; default: 3 with at least three brokers, else 1."
    )
    max_message_bytes: Bytes = Field(
        4 * MIB, ge=SMALLEST_MESSAGE_BYTES, description="`max.message.bytes` of the events and quarantine topics."
    )
    retention_bytes: Bytes = Field(
        -1,
        ge=-1,
        description="`retention.bytes` of each partition of the events and quarantine topics; -1: unlimited.",
    )
