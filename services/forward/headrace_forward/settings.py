"""Settings of the Forward receiver."""

from __future__ import annotations

from typing import ClassVar, Self

from headrace_common.operations.settings import KIB, Section, ServiceSettings
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

    tag_bytes: ClassVar[int] = KIB
    """Longest tag: it becomes the subject, a header of every event. A message with a longer one goes to quarantine."""

    chunk_bytes: ClassVar[int] = KIB
    """Longest `chunk`: clients send 24 to 32 bytes, and each is kept until it is answered. A longer one closes the connection."""

    option_bytes: ClassVar[int] = 16 * KIB
    """Largest option map: clients send a hundred bytes. A message with a larger one goes to quarantine."""

    handshake_bytes: ClassVar[int] = 4 * KIB
    """Largest login: fluentd sends about 330 bytes, Fluent Bit up to 1,023. A larger one closes the connection."""

    server_hostname: ClassVar[str] = "headrace-forward"
    """This server's name in the handshake. A fluentd of the same name refuses it."""

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
            raise ValueError("FORWARD__ALLOW_ANONYMOUS_SOURCE false without FORWARD__CLIENTS refuses every client")
        return self


class ForwardSettings(ServiceSettings):
    """All settings of ``python -m headrace_forward``."""

    forward: ForwardSection = ForwardSection()
