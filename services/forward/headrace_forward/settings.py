"""Settings of the Forward receiver."""

from __future__ import annotations

from typing import ClassVar, Self

from headrace_common.operations.settings import KIB, Section, ServiceSettings
from pydantic import Field, SecretStr, model_validator

PORT = 24224
"""The protocol's port."""


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

    @model_validator(mode="after")
    def _sense(self) -> Self:
        if self.shared_key is not None and not self.shared_key.get_secret_value():
            raise ValueError("FORWARD__SHARED_KEY is empty: any client would know it")
        for name, password in self.users.items():
            if not name or not password.get_secret_value():
                raise ValueError("FORWARD__USERS: a user has no name or no password")
        if self.users and self.shared_key is None:
            raise ValueError(
                "FORWARD__USERS needs FORWARD__SHARED_KEY: without a key there is no handshake, and so no login"
            )
        return self


class ForwardSettings(ServiceSettings):
    """All settings of the receiver."""

    forward: ForwardSection = ForwardSection()
