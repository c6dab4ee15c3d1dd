"""Settings, declared once: environment, YAML file, documentation and the Helm schema all derive from these classes.

Environment ``HEADRACE_<SECTION>__<NAME>``, or a YAML file (``--config``) with the sections as mappings; the environment
wins. A secret may also come from a file named by ``HEADRACE_<SECTION>__<NAME>_FILE``. Durations: seconds; sizes: bytes.
A variable of a section that a service lacks is ignored; an unknown name inside one of its sections is a `ConfigError`.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from headrace_common.errors import ConfigError
from headrace_common.proxy import Network, networks

PREFIX: Final = "HEADRACE_"
KIB: Final = 1024
MIB: Final = 1024 * KIB

SECTIONS: Final = frozenset(
    {
        "kafka", "topics", "listen", "tls", "limits", "ops", "log",
        "forward", "lumberjack", "courier", "logjam", "segment", "lake",
    }
)  # fmt: skip
"""Every section that any part of Headrace knows: one YAML file may configure all of them."""


class Section(BaseModel):
    """A group of settings: immutable, nothing unknown in it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class KafkaSettings(Section):
    """Where Kafka is and how it is spoken to."""

    bootstrap_servers: str = Field("localhost:9092", description="Brokers to start from, `host:port` with commas.")
    events_topic: str = Field("headrace.events", description="Topic of the events.")
    quarantine_topic: str = Field("headrace.quarantine", description="Topic of what could not be understood.")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="As in every Kafka client."
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "SCRAM-SHA-512", description="With a SASL protocol."
    )
    sasl_username: str = Field("", description="With a SASL protocol.")
    sasl_password: SecretStr = Field(SecretStr(""), description="With a SASL protocol; better `…_FILE`.")
    ca: Path | None = Field(None, description="PEM file of the CA that signed the brokers; default: the system's.")
    ack_deadline: float = Field(
        300, gt=0, description="How long a frame may wait for Kafka before its connection is closed unacknowledged."
    )
    request_timeout: float = Field(
        30, ge=1, description="How long one request to a broker may take; then it is sent again on a new connection."
    )
    batch_bytes: int = Field(
        1 * MIB,
        ge=16 * KIB,
        description="Largest batch before compression; never above three quarters of `max.message.bytes`.",
    )
    spread: bool = Field(
        False, description="Spread each connection's frames over all partitions; order per connection is then lost."
    )

    @model_validator(mode="after")
    def _credentials(self) -> Self:
        if self.security_protocol.startswith("SASL") and not (
            self.sasl_username and self.sasl_password.get_secret_value()
        ):
            raise ValueError("a SASL security protocol needs SASL_USERNAME and SASL_PASSWORD")
        return self


class TopicSettings(Section):
    """How `python -m headrace_common.topics` creates the topics. Nothing that exists is ever made smaller."""

    events_partitions: int = Field(12, ge=1, description="Partitions of the events topic.")
    quarantine_partitions: int = Field(3, ge=1, description="Partitions of the quarantine topic.")
    events_retention: int = Field(7 * 86_400, ge=60, description="Seconds that events stay in Kafka.")
    quarantine_retention: int = Field(30 * 86_400, ge=60, description="Seconds that quarantine stays in Kafka.")
    replication: int | None = Field(
        None, ge=1, description="Replicas; default: 3 where there are three brokers, else 1."
    )
    max_message_bytes: int = Field(4 * MIB, ge=64 * KIB, description="`max.message.bytes` of both topics.")
    retention_bytes: int = Field(
        -1, ge=-1, description="`retention.bytes` of each partition; -1: no bound (a laptop's stack sets one)."
    )


class ListenSettings(Section):
    """Where clients connect."""

    host: str = Field("0.0.0.0", description="Address to listen on.")  # noqa: S104  (a receiver is meant to be reached)
    port: int = Field(0, ge=0, le=65_535, description="Port; 0: the protocol's own.")
    socket: Path | None = Field(None, description="Path of a Unix stream socket to listen on as well, without TLS.")
    trusted_proxies: str = Field(
        "",
        description="Addresses and networks (commas) of balancers that begin every connection with a PROXY protocol header,"
        " version 1 or 2; nobody else is believed.",
    )

    @property
    def proxies(self) -> tuple[Network, ...]:
        """TRUSTED_PROXIES as networks."""
        return networks(self.trusted_proxies)

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, text: str) -> str:
        networks(text)
        return text


class TlsSettings(Section):
    """TLS towards clients. On when CERT is set; the files are read again when they change."""

    cert: Path | None = Field(None, description="PEM file: the server's certificate and its chain.")
    key: Path | None = Field(None, description="PEM file: the private key.")
    client_ca: Path | None = Field(None, description="PEM file: clients must show a certificate signed by this CA.")
    minimum: Literal["1.2", "1.3"] = Field("1.2", description="Lowest TLS version.")

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.cert is None) != (self.key is None):
            raise ValueError("TLS__CERT and TLS__KEY go together")
        if self.client_ca is not None and self.cert is None:
            raise ValueError("TLS__CLIENT_CA needs TLS__CERT")
        return self


class LimitSettings(Section):
    """Limits on what one client, and all of them, may ask of this process. Each has a metric when it is hit."""

    connections: int = Field(10_000, ge=1, description="Open connections; more are closed at once.")
    frame_bytes: int = Field(16 * MIB, ge=KIB, description="One frame as it arrives.")
    frame_time: float = Field(60, gt=0, description="From a frame's first byte to its last, plus 1 s for each 8 KiB.")
    frame_events: int = Field(100_000, ge=1, description="Events in one frame; the rest goes to quarantine.")
    event_bytes: int = Field(1 * MIB, ge=KIB, description="One event as it is stored; larger goes to quarantine.")
    inflated_bytes: int = Field(64 * MIB, ge=KIB, description="One frame after inflating.")
    ratio: float = Field(1_000, gt=1, description="Inflated size over compressed size, judged above 1 MiB of output.")
    depth: int = Field(64, ge=1, le=200, description="Nesting of one event.")
    handshake_time: float = Field(10, gt=0, description="For TLS and for the protocol's own handshake, each.")
    idle_time: float = Field(0, ge=0, description="Close a connection that was silent so long; 0: never.")
    connection_age: float = Field(
        0, ge=0, description="Close a connection between frames at about this age so that clients rebalance; 0: never."
    )
    connection_budget: int = Field(
        96 * MIB, ge=64 * KIB, description="Bytes in flight of one connection, from a frame's first byte until stored."
    )
    process_budget: int = Field(
        256 * MIB,
        ge=128 * KIB,
        description="Bytes in flight of all connections: half for what arrives (above that no socket is read), "
        "half for what frames inflate to.",
    )
    drain_time: float = Field(25, gt=0, description="How long a stopping service waits for Kafka and its clients.")

    @model_validator(mode="after")
    def _no_deadlock(self) -> Self:
        frame = self.frame_bytes + self.inflated_bytes
        if self.connection_budget < frame:
            raise ValueError(
                f"LIMITS__CONNECTION_BUDGET ({self.connection_budget}) must hold one frame at its limits: "
                f"FRAME_BYTES + INFLATED_BYTES = {frame}"
            )
        if self.process_budget < 2 * self.connection_budget:
            raise ValueError("LIMITS__PROCESS_BUDGET must be at least twice LIMITS__CONNECTION_BUDGET")
        if self.event_bytes > self.frame_bytes:
            raise ValueError("LIMITS__EVENT_BYTES is above LIMITS__FRAME_BYTES")
        return self


class OpsSettings(Section):
    """Health and metrics over HTTP."""

    host: str = Field("0.0.0.0", description="Address to listen on.")  # noqa: S104  (probes come from outside the pod)
    port: int = Field(8080, ge=0, le=65_535, description="Port; 0: any free one (logged).")


class LogSettings(Section):
    """Logs on standard error, one line each."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is written.")
    format: Literal["json", "console", "auto"] = Field(
        "auto", description="`auto`: console on a terminal, JSON otherwise."
    )


class Settings(BaseSettings):
    """Base of a process's settings: its sections are its fields."""

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
        """The environment (with secrets from files) first, then what `load` read from YAML."""
        return (_Environment(settings_cls), init_settings)


class ServiceSettings(Settings):
    """What every receiver has; a receiver adds one section of its own."""

    kafka: KafkaSettings = KafkaSettings()
    listen: ListenSettings = ListenSettings()
    tls: TlsSettings = TlsSettings()
    limits: LimitSettings = LimitSettings()
    ops: OpsSettings = OpsSettings()


class TopicsProcessSettings(Settings):
    """Settings of ``python -m headrace_common.topics``."""

    kafka: KafkaSettings = KafkaSettings()
    topics: TopicSettings = TopicSettings()


class _Environment(EnvSettingsSource):
    """The environment, with the secrets that ``…_FILE`` variables name read in."""

    def _load_env_vars(self) -> Mapping[str, str | None]:
        values = dict(super()._load_env_vars())
        for section in self.settings_cls.model_fields:
            name = f"{PREFIX}{section}"
            if name.lower() in values:
                raise ConfigError(f"{name.upper()} is a section: its settings are {name.upper()}__<NAME>")
        return _read_secrets(self.settings_cls, values)


def _read_secrets(cls: type[BaseSettings], values: dict[str, str | None]) -> dict[str, str | None]:
    for section, name, info in each_setting(cls):
        direct = variable(section, name).lower()
        path = values.pop(f"{direct}_file", None) if _holds_secret(info.annotation) else None
        if path is None:
            continue
        if values.get(direct):
            raise ConfigError(f"{direct.upper()} and {direct.upper()}_FILE are both set")
        try:
            values[direct] = Path(path).read_text().rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{direct.upper()}_FILE: {error}") from error
    return values


def _holds_secret(annotation: Any) -> bool:
    """Whether a setting of this type is a secret, or a collection with secrets in it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return any(_holds_secret(info.annotation) for info in annotation.model_fields.values())
    return annotation is SecretStr or any(map(_holds_secret, get_args(annotation)))


def each_setting(cls: type[BaseSettings]) -> list[tuple[str, str, FieldInfo]]:
    """(section, name, declaration) of every setting of `cls`, in order; for documentation, schema and tests."""
    rows = []
    for section, info in cls.model_fields.items():
        model = info.annotation
        assert isinstance(model, type)
        assert issubclass(model, BaseModel)
        rows += [(section, name, field) for name, field in model.model_fields.items()]
    return rows


S = TypeVar("S", bound=Settings)


def load(cls: type[S], config: Path | None = None) -> S:
    """Settings of type `cls` from the environment and the YAML file `config`.

    Raises `ConfigError` with one line per problem: unknown names, values out of range, contradictions.
    """
    document = _read_yaml(config) if config is not None else {}
    try:
        return cls(**document)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(problem) for problem in error.errors())) from error
    except SettingsError as error:
        raise ConfigError(_explain_json(cls)) from error


def parse_arguments(cls: type[S], program: str, description: str, argv: Sequence[str] | None = None) -> S:
    """`load` for a process's command line (``--config FILE``, ``--help`` lists every setting)."""
    parser = argparse.ArgumentParser(
        prog=program,
        description=description,
        epilog="environment:\n" + "\n".join(f"  {line}" for line in describe(cls)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, help="YAML file with settings; the environment wins")
    return load(cls, parser.parse_args(argv).config)


def describe(cls: type[BaseSettings]) -> list[str]:
    """One line per setting: variable, default, meaning."""
    lines = []
    for section, name, info in each_setting(cls):
        default = info.default.get_secret_value() if isinstance(info.default, SecretStr) else info.default
        lines.append(f"{variable(section, name)} [{'' if default is None else default}]: {info.description}")
    return lines


def variable(section: str, name: str) -> str:
    """The environment variable of a setting."""
    return f"{PREFIX}{section}__{name}".upper()


def environment(section: str, **values: object) -> dict[str, str]:
    """Environment variables that set `values` in `section`: for whoever starts a process of ours."""
    return {variable(section, name): str(value) for name, value in values.items()}


def own_environment() -> dict[str, str]:
    """The variables of this process's environment that are ours."""
    return {name: value for name, value in os.environ.items() if name.upper().startswith(PREFIX)}


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml  # a megabyte that most processes do without

    try:
        document = yaml.safe_load(path.read_text()) or {}
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if isinstance(document, dict):  # a section whose settings are all commented out
        document = {name: {} if value is None else value for name, value in document.items()}
    if not isinstance(document, dict) or not all(isinstance(value, dict) for value in document.values()):
        raise ConfigError(f"{path}: expected a mapping of sections, each a mapping of settings")
    document = {str(name).lower(): {str(k).lower(): v for k, v in value.items()} for name, value in document.items()}
    unknown = sorted(set(document) - SECTIONS)
    if unknown:
        raise ConfigError(f"{path}: no section is called {', '.join(unknown)}")
    return document


def _explain_json(cls: type[Settings]) -> str:
    """Which variables hold no JSON where JSON is wanted: pydantic-settings names the section only."""
    bad = []
    for name, value in _read_secrets(cls, {key.lower(): value for key, value in os.environ.items()}).items():
        for section, setting, info in each_setting(cls):
            if name == variable(section, setting).lower() and get_origin(info.annotation) in (dict, tuple):
                try:
                    json.loads(value or "")
                except ValueError:
                    bad.append(f"{name.upper()}: not JSON")
    return "\n".join(bad) or "a section is set to something that is no JSON"


def _explain(problem: Any) -> str:
    location = [str(part) for part in problem["loc"]]
    name = variable(location[0], "__".join(location[1:])) if len(location) > 1 else "__".join(location).upper()
    if problem["type"] == "extra_forbidden":
        return f"{name}: there is no such setting"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{name}: {message}" if len(location) > 1 else message
