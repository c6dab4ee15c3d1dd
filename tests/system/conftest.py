"""One broker for all of these tests, which can be refused to, stopped, reached through a proxy, and asks who is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from headrace_cli.machine.ports import free_port
from headrace_cli.stack.broker import HOST
from headrace_common.operations.settings import KafkaSettings
from typing_extensions import override

from tests.contract.brokers import HEEDS_RULES, ProxiedListener
from tests.contract.certificates import Authority
from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import Receivers
from tests.contract.tokens import Signer
from tests.contract.topic import own_topics

USER, PASSWORD = "headrace", "not-a-secret"
GUARDED: Final = {"PASSWORD": "SASL_SSL", "CERTIFICATE": "SSL", "TOKEN": "SASL_PLAINTEXT"}
"""Protocols of the listeners that ask who is there, by name."""

_BEARER: Final = "org.apache.kafka.common.security.oauthbearer"
_ASKS: Final = {
    "password.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "password.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "certificate.ssl.client.auth": "required",
    "token.sasl.enabled.mechanisms": "OAUTHBEARER",
    "token.oauthbearer.sasl.jaas.config": f"{_BEARER}.OAuthBearerLoginModule required;",
    "token.oauthbearer.sasl.server.callback.handler.class": f"{_BEARER}.OAuthBearerValidatorCallbackHandler",
    "token.oauthbearer.connections.max.reauth.ms": "3600000",
}
"""Properties of these listeners."""


class Broker(EmbeddedKafka):
    """A broker that heeds access rules. `listener`: its second one, which is only reached through a proxy. `at`: the addresses of
    those that ask who is there, by name. `authority` has signed its certificate, `signer` signs the tokens that it takes.
    """

    def __init__(self, folder: Path) -> None:
        port, controller = free_port(), free_port()
        self.listener, self.signer = ProxiedListener(), Signer()
        self.at = {name: f"{HOST}:{free_port()}" for name in GUARDED}
        (folder / "pki").mkdir()
        self.authority = Authority(folder / "pki")
        certificate, key = self.authority.issue("broker", "broker")
        store, self._keys = folder / "keystore.pem", folder / "keys.json"
        store.write_bytes(key.read_bytes() + certificate.read_bytes())
        self._keys.write_text(self.signer.keys)
        properties = self.listener.properties(port, controller)
        for name, more in {
            "listeners": [f"{name}://{address}" for name, address in self.at.items()],
            "advertised.listeners": [f"{name}://{address}" for name, address in self.at.items()],
            "listener.security.protocol.map": [f"{name}:{protocol}" for name, protocol in GUARDED.items()],
        }.items():
            properties[name] = ",".join((properties[name], *more))
        properties |= {
            **HEEDS_RULES,
            **{f"listener.name.{name}": value for name, value in _ASKS.items()},
            "broker.session.timeout.ms": "6000",  # a killed broker's partitions are soon known to have no leader
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.file),
            "sasl.oauthbearer.jwks.endpoint.url": self._keys.as_uri(),
            "sasl.oauthbearer.expected.audience": "brokers",
        }
        super().__init__(folder, port, controller, properties, scram_users={USER: PASSWORD})

    @override
    def _java(self, main: str, *arguments: str) -> list[str]:
        java, *rest = super()._java(main, *arguments)
        return [java, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._keys.as_uri()}", *rest]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def topics(broker: Broker) -> KafkaSettings:
    """Topics of the test's own."""
    return own_topics(broker.bootstrap)


@pytest.fixture
def start(topics: KafkaSettings, tmp_path: Path) -> Iterator[Receivers]:
    with Receivers("forward", topics, tmp_path) as receivers:
        yield receivers
