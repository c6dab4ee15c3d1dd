"""A Kafka that does not let everybody in: an embedded broker with a second listener that asks who is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from headrace_cli.machine.ports import free_port

from tests.contract.certificates import Authority
from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import HOST


class GuardedKafka(EmbeddedKafka):
    """A broker whose listener at `guarded` speaks `protocol`; the one at `bootstrap` asks nothing.

    `properties` add to the broker's. `authority`: signs the certificate of a listener with TLS. `java`: options of its JVM.
    `scram_users`: passwords by name.
    """

    def __init__(
        self,
        folder: Path,
        protocol: Literal["SSL", "SASL_SSL", "SASL_PLAINTEXT"],
        properties: Mapping[str, str],
        *,
        authority: Authority | None = None,
        java: Sequence[str] = (),
        scram_users: Mapping[str, str] | None = None,
    ) -> None:
        self._java_options = list(java)
        port, controller, guarded = (free_port() for _ in range(3))
        self.guarded = f"{HOST}:{guarded}"
        addresses = f"PLAINTEXT://{HOST}:{port},GUARDED://{self.guarded}"
        super().__init__(
            folder,
            port,
            controller,
            {
                "listeners": f"{addresses},CONTROLLER://{HOST}:{controller}",
                "advertised.listeners": addresses,
                "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,GUARDED:{protocol},CONTROLLER:PLAINTEXT",
                **(_certificate(authority) if authority is not None else {}),
                **properties,
            },
            scram_users=scram_users,
        )

    def _java(self, main: str, *arguments: str) -> list[str]:
        java, *rest = super()._java(main, *arguments)
        return [java, *self._java_options, *rest]


def _certificate(authority: Authority) -> dict[str, str]:
    cert, key = authority.issue("broker", "broker")
    store = authority.folder / "broker-keystore.pem"
    store.write_bytes(key.read_bytes() + cert.read_bytes())
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
    }
