"""Settings, declared once: environment, documentation and the Helm schema all derive from these classes.

A setting that several parts have is one line here. It comes from ``HEADRACE_<SECTION>__<NAME>`` in the environment; a secret
may also come from a file that ``HEADRACE_<SECTION>__<NAME>_FILE`` names. Durations are in seconds, sizes in bytes; as text both
may have a unit (`variables.read_seconds`, `read_bytes`). A service ignores variables of sections that it lacks; an unknown name
inside one of its sections is a `ConfigError`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from headrace_common.operations.errors import ConfigError
from headrace_common.operations.networks import Brokers, Network, TokenUrl, networks
from headrace_common.operations.variables import PREFIX, Bytes, Environment, Seconds, WholeSeconds, explain, variable

KIB: Final = 1024
MIB: Final = 1024 * KIB

Networks = Annotated[tuple[Network, ...], NoDecode, BeforeValidator(networks)]

SMALLEST_MESSAGE_BYTES: Final = 64 * KIB  # of `max.message.bytes`: a part of a reject has its frame's options


class Section(BaseModel):
    """The base class of a group of settings: immutable, without unknown names."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


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
    oauth_endpoint: TokenUrl = Field(
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


class ListenSettings(Section):
    """Where clients connect."""

    host: str = Field("0.0.0.0", description="Address to listen on.")  # noqa: S104  (clients must reach a receiver)
    port: int = Field(0, ge=0, le=65_535, description="Port; 0: the protocol's own.")
    trusted_proxies: Networks = Field(
        (),
        description="Addresses and networks, separated by commas, of load balancers. They must send a PROXY protocol header,"
        " version 1 or 2, on every connection; it is believed from no other peer.",
    )


class TlsSettings(Section):
    """TLS towards clients. On when CERT is set. Changed files are reloaded."""

    cert: Path | None = Field(None, description="PEM file with the server's certificate and its chain.")
    key: Path | None = Field(None, description="PEM file with the private key, unencrypted.")
    client_ca: Path | None = Field(None, description="PEM file of the CA that must have signed a client's certificate.")
    minimum: Literal["1.2", "1.3"] = Field("1.2", description="Lowest TLS version.")

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.cert is None) != (self.key is None):
            raise ValueError("TLS__CERT and TLS__KEY go together")
        if self.client_ca is not None and self.cert is None:
            raise ValueError("TLS__CLIENT_CA needs TLS__CERT")
        return self


class LimitSettings(Section):
    """Limits on what one client, and all clients together, may ask of this process. A metric counts what clients hit."""

    depth: ClassVar[int] = 64  # of an event: what reads it later recurses, too, and events are nested ten deep
    frame_events: ClassVar[int] = 100_000  # clients send some thousands, and each is noted, however small it is
    handshake_time: ClassVar[float] = 10  # seconds, for two or three round trips

    connections: int = Field(
        10_000,
        ge=1,
        description="Maximum open connections; for a newcomer the longest idle leaves.",
    )
    frame_bytes: Bytes = Field(16 * MIB, ge=KIB, description="Maximum size of one frame as received.")
    frame_time: Seconds = Field(
        60,
        gt=0,
        description="Maximum time from a frame's first byte to its last, plus 1 s for each 8 KiB; and of silence in it.",
    )
    event_bytes: Bytes = Field(
        3 * MIB, ge=KIB, description="Maximum size of one event as stored; larger ones go to quarantine."
    )
    inflated_bytes: Bytes = Field(64 * MIB, ge=KIB, description="Maximum size of one frame after inflating.")
    connection_age: Seconds = Field(
        3600,
        ge=0,
        description="Close a connection, between frames, at about this age, so that clients rebalance; 0: never. Not of a client"
        " that asks for no acknowledgement.",
    )
    connection_budget: Bytes = Field(
        96 * MIB,
        ge=64 * KIB,
        description="Maximum bytes in flight of one connection: from a frame's first byte until stored.",
    )
    process_budget: Bytes = Field(
        256 * MIB,
        ge=128 * KIB,
        description="Maximum bytes in flight of all connections: half for received frames, half for what they inflate to.",
    )
    drain_time: Seconds = Field(25, gt=0, description="How long a stopping service waits for Kafka and its clients.")

    @model_validator(mode="after")
    def _no_deadlock(self) -> Self:
        budget, frame = self.connection_budget, self.frame_bytes + self.inflated_bytes
        if budget < frame:
            least = f"one frame at its limits: FRAME_BYTES + INFLATED_BYTES = {frame}"
            raise ValueError(f"LIMITS__CONNECTION_BUDGET ({budget}) must hold {least}")
        if self.process_budget < 2 * budget:
            raise ValueError("LIMITS__PROCESS_BUDGET must be at least twice LIMITS__CONNECTION_BUDGET")
        if self.event_bytes > self.frame_bytes and "event_bytes" in self.model_fields_set:
            raise ValueError("LIMITS__EVENT_BYTES is above LIMITS__FRAME_BYTES")
        return self


class OpsSettings(Section):
    """Health and metrics over HTTP."""

    host: str = Field("0.0.0.0", description="Address to listen on.")  # noqa: S104  (probes come from outside the pod)
    port: int = Field(8080, ge=0, le=65_535, description="Port; 0: any free one (logged).")


class LogSettings(Section):
    """Logs on standard error, a line of JSON per event."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level that is written.")


class Settings(BaseSettings):
    """Base class of a process's settings: its fields are the sections."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", extra="ignore", frozen=True, case_sensitive=False
    )

    log: LogSettings = LogSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Returns the environment, with secrets from files, and after it the arguments."""
        return (Environment(settings_cls), init_settings)


class ServiceSettings(Settings):
    """The settings of every receiver; each receiver adds one section of its own."""

    kafka: KafkaSettings = KafkaSettings()
    listen: ListenSettings = ListenSettings()
    tls: TlsSettings = TlsSettings()
    limits: LimitSettings = LimitSettings()
    ops: OpsSettings = OpsSettings()


class TopicsProcessSettings(Settings):
    """The settings of ``python -m headrace_common.topics``."""

    kafka: KafkaSettings = KafkaSettings()
    topics: TopicSettings = TopicSettings()


S = TypeVar("S", bound=Settings)


def load(cls: type[S]) -> S:
    """Loads settings of type `cls` from the environment.

    Raises `ConfigError` with one line per problem: unknown names, values out of range, contradictions.
    """
    try:
        return cls()
    except ValidationError as error:
        raise ConfigError("\n".join(map(explain, error.errors()))) from error


def environment(section: str, **values: object) -> dict[str, str]:
    """Returns the environment variables that set `values` in `section`, to start another Headrace process with."""
    return {variable(section, name): str(value) for name, value in values.items()}


def own_environment() -> dict[str, str]:
    """Returns the Headrace variables in this process's environment."""
    return {name: value for name, value in os.environ.items() if name.upper().startswith(PREFIX)}
