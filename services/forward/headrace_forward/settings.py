"""Settings of the Forward receiver."""

from __future__ import annotations

from typing import Self

from headrace_common.operations.settings import KIB, Section, ServiceSettings
from headrace_common.operations.variables import Bytes
from pydantic import Field, SecretStr, model_validator

PORT = 24224
"""The protocol's port."""


class ClientSection(Section):
    """Rules for clients from one place: an item of FORWARD__CLIENTS."""

    host: str = Field(min_length=1, description="Address, network (10.0.0.0/8), or host name, resolved once at start.")
    shared_key: SecretStr | None = Field(None, description="Shared key of these clients; default: FORWARD__SHARED_KEY.")
    users: tuple[str, ...] = Field((), description="Users that may log in from there; default: all.")


class ForwardSection(Section):
    """Settings of Forward alone."""

    tag_bytes: Bytes = Field(
        KIB, ge=1, le=64 * KIB, description="Longest tag; a message with a longer one goes to quarantine."
    )
    chunk_bytes: Bytes = Field(
        KIB, ge=1, le=64 * KIB, description="Longest `chunk` option; a longer one closes the connection."
    )
    option_bytes: Bytes = Field(
        16 * KIB,
        ge=KIB,
        le=256 * KIB,
        description="Largest option map; a message with a larger one goes to quarantine.",
    )
    heartbeat: bool = Field(
        True, description="Answer fluentd's UDP heartbeats on the same port, while the receiver is ready."
    )
    shared_key: SecretStr | None = Field(
        None,
        description="Key that clients must prove; if set, every connection begins with the handshake. Prefer `…_FILE`.",
    )
    users: dict[str, SecretStr] = Field(
        {},
        description="Mapping of user names to passwords (JSON in the environment); if set, clients must also log in.",
    )
    clients: tuple[ClientSection, ...] = Field(
        (),
        description="Rules by client address: a list of `host`, `shared_key` and `users` (JSON in the environment); the first"
        " that matches applies.",
    )
    allow_anonymous_source: bool = Field(
        True, description="Whether clients that match no rule of FORWARD__CLIENTS may send."
    )
    server_hostname: str = Field(
        "headrace-forward",
        min_length=1,
        max_length=255,
        description="This server's name in the handshake. A fluentd with the same name refuses it.",
    )
    keepalive: bool = Field(
        True, description="Whether the handshake tells clients to keep connections open; fluentd obeys."
    )
    handshake_bytes: Bytes = Field(
        4 * KIB, ge=KIB, le=64 * KIB, description="Largest login message; nothing is inflated before it."
    )

    @property
    def secured(self) -> bool:
        """Whether connections begin with the handshake."""
        return self.shared_key is not None or bool(self.clients)

    @model_validator(mode="after")
    def _sense(self) -> Self:
        keys = [("FORWARD__SHARED_KEY", self.shared_key)]
        keys += [(f"FORWARD__CLIENTS {rule.host}: shared_key", rule.shared_key) for rule in self.clients]
        for name, key in keys:
            if key is not None and not key.get_secret_value():
                raise ValueError(f"{name} is empty: any client would know it")
        for name, password in self.users.items():
            if not name or not password.get_secret_value():
                raise ValueError("FORWARD__USERS: a user has no name or no password")
        if self.users and not self.secured:
            raise ValueError(
                "FORWARD__USERS needs FORWARD__SHARED_KEY: without a key there is no handshake, and so no login"
            )
        for rule in self.clients:
            if rule.shared_key is None and self.shared_key is None:
                raise ValueError(f"FORWARD__CLIENTS {rule.host} has no shared_key, and there is no FORWARD__SHARED_KEY")
            unknown = sorted(set(rule.users) - set(self.users))
            if unknown:
                raise ValueError(f"FORWARD__CLIENTS {rule.host}: FORWARD__USERS has no {', '.join(unknown)}")
        if not self.allow_anonymous_source and not self.clients:
            raise ValueError("FORWARD__ALLOW_ANONYMOUS_SOURCE false without FORWARD__CLIENTS lets nobody in")
        return self


class ForwardSettings(ServiceSettings):
    """All settings of ``python -m headrace_forward``."""

    forward: ForwardSection = ForwardSection()
