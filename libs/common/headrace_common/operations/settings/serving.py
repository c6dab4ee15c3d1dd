"""The sections about clients and operators: where a process listens, TLS, limits, health and metrics, logs."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from headrace_common.operations.networks import Network, networks
from headrace_common.operations.variables import KIB, MIB, Bytes, Seconds, Section


class ListenSettings(Section):
    """Where clients connect."""

    host: str = Field("0.0.0.0", description="Address to listen on.")  # noqa: S104  (clients must reach a receiver)
    port: int = Field(0, ge=0, le=65_535, description="Port; 0: the protocol's own.")
    trusted_proxies: str = Field(
        "",
        description="Addresses and networks, separated by commas, of load balancers. They must send a PROXY protocol header,"
        " version 1 or 2, on every connection; it is believed from no other peer.",
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
