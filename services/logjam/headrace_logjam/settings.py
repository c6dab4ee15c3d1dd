"""Settings of the Logjam receiver."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Final, Self

from headrace_common.operations.settings import KIB, MIB, LimitSettings, Networks, Section, ServiceSettings
from headrace_common.operations.variables import Bytes
from pydantic import Field, SecretStr, field_validator, model_validator

PORT: Final = 9604
"""The port on which Logjam's devices answer producers."""

PULL_PORT: Final = 9605
"""The port on which they take messages without an answer."""

_KEY: Final = r"^[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}$"
"""A CURVE key: 32 bytes in Z85 (ZeroMQ's RFC 32)."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
Address = Annotated[str, Field(pattern=r"^(tcp://\S+:\d{1,5}|ipc://\S+)$")]
Key = Annotated[str, Field(pattern=_KEY)]


class LogjamLimits(LimitSettings):
    """The limits, with the protocol's own defaults."""

    frame_bytes: Bytes = Field(
        4 * MIB, ge=KIB, description="One frame of a message; who sends a larger one is disconnected."
    )


class LogjamSection(Section):
    """Settings of Logjam alone."""

    pull_port: int = Field(PULL_PORT, ge=0, le=65_535, description="Port for producers that want no answer; 0: none.")
    endpoints: dict[Name, Address] = Field(
        {},
        description="Devices to consume, as JSON: name to address, `tcp://` or `ipc://`. The name is the source of their events.",
    )
    consumer: str = Field("", max_length=255, description="Our name in attributes of messages; default: the host's.")
    endpoint_messages: ClassVar[int] = 10_000
    """Messages of one endpoint that ZeroMQ keeps, beyond the budgets, while it is not read; the device keeps a million."""

    peer_messages: ClassVar[int] = 16
    """Messages of one client that ZeroMQ keeps, beyond the budgets, while it is not read."""

    allow: Networks = Field(
        (), description="Addresses and networks, separated by commas, from which clients may connect; default: all."
    )
    curve_secret_key: SecretStr = Field(
        SecretStr(""), description="Our secret CURVE key (Z85), for clients and towards devices; prefer `…_FILE`."
    )
    curve_clients: dict[Name, Key] = Field(
        {},
        description="Clients that may connect, as JSON: name to public CURVE key (Z85). The name is the source of their events.",
    )
    curve_devices: dict[Name, Key] = Field(
        {}, description="Endpoints that speak CURVE, as JSON: name to the device's public key (Z85)."
    )
    pub_port: int = Field(
        0,
        ge=0,
        le=65_535,
        description="Port on which what producers send is published once it is stored, as a device does (9606); 0: none.",
    )
    pub_address: str = Field(
        "",
        pattern=r"^(tcp://\S+:\d{1,5})?$",
        description="Where consumers reach PUB_PORT, letter for letter: `tcp://HOST:PORT`; default: the host's name.",
    )
    pub_messages: ClassVar[int] = 100_000
    """Messages that ZeroMQ keeps for one subscriber that is slow, a tenth of what a device keeps: they take our memory, beyond
    the budgets. It drops further ones."""

    device: int = Field(0, ge=0, le=2**32 - 1, description="Our own number as a device, needed by PUB_PORT.")

    @field_validator("curve_secret_key")
    @classmethod
    def _secret(cls, key: SecretStr) -> SecretStr:
        if key.get_secret_value() and not re.fullmatch(_KEY, key.get_secret_value()):
            raise ValueError("not a CURVE key: 40 characters of Z85")
        return key

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.curve_clients and not self.curve_secret_key.get_secret_value():
            raise ValueError("LOGJAM__CURVE_CLIENTS needs LOGJAM__CURVE_SECRET_KEY")
        if self.curve_secret_key.get_secret_value() and not (self.curve_clients or self.curve_devices):
            raise ValueError("LOGJAM__CURVE_SECRET_KEY needs LOGJAM__CURVE_CLIENTS or LOGJAM__CURVE_DEVICES")
        if unknown := self.curve_devices.keys() - self.endpoints.keys():
            raise ValueError(f"LOGJAM__CURVE_DEVICES: {', '.join(sorted(unknown))}: no endpoint is called so")
        if self.pub_port and not self.device:
            raise ValueError("LOGJAM__PUB_PORT needs LOGJAM__DEVICE, a number that no other device has")
        return self


class LogjamSettings(ServiceSettings):
    """All settings of the receiver."""

    limits: LogjamLimits = LogjamLimits()
    logjam: LogjamSection = LogjamSection()

    @model_validator(mode="after")
    def _only_zeromq(self) -> Self:
        """Refuses settings that ZeroMQ cannot follow."""
        for given, name in (
            *((True, f"TLS__{each.upper()}") for each in sorted(self.tls.model_fields_set)),
            (bool(self.listen.trusted_proxies), "LISTEN__TRUSTED_PROXIES"),
        ):
            if given:
                raise ValueError(f"{name} means nothing to ZeroMQ: Logjam's receiver does not have it")
        return self
