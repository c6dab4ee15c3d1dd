"""Kafka with SASL OAUTHBEARER: tokens that a broker checks, that end soon, that it refuses, and that nobody gives."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headrace_common.operations.settings import KafkaSettings

from tests.contract.certificates import Authority
from tests.contract.guarded import GuardedKafka
from tests.contract.receiver import Receiver
from tests.contract.tokens import CLIENT, SECRET, Signer, TokenEndpoint
from tests.contract.topic import events, own_topics
from tests.contract.waiting import until
from tests.system.landing import landing, store

pytestmark = [pytest.mark.kafka, pytest.mark.long]

_BEARER = "org.apache.kafka.common.security.oauthbearer"
_LISTENER = "listener.name.guarded.oauthbearer"


@pytest.fixture(scope="module")
def signer() -> Signer:
    return Signer()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, signer: Signer) -> Iterator[GuardedKafka]:
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_text(signer.keys)
    with GuardedKafka(
        tmp_path_factory.mktemp("kafka"),
        "SASL_PLAINTEXT",
        {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{_LISTENER}.sasl.jaas.config": f"{_BEARER}.OAuthBearerLoginModule required;",
            f"{_LISTENER}.sasl.server.callback.handler.class": f"{_BEARER}.OAuthBearerValidatorCallbackHandler",
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.audience": "brokers",
            f"{_LISTENER}.connections.max.reauth.ms": "3600000",
        },
        java=[f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}"],
    ) as running:
        yield running


def access(guarded: GuardedKafka, endpoint: TokenEndpoint, folder: Path, **other: Any) -> dict[str, Any]:
    """Settings for the listener that asks."""
    secret = folder / "secret"
    secret.write_text(SECRET + "\n")
    return {
        "bootstrap_servers": guarded.guarded,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "oauth_endpoint": endpoint.url,
        "oauth_client_id": CLIENT,
        "oauth_client_secret_file": secret,
        "oauth_scope": "kafka",
        **other,
    }


@pytest.mark.spark
async def test_an_event_from_a_client_to_the_lake(
    guarded: GuardedKafka, authority: Authority, signer: Signer, tmp_path: Path
) -> None:
    plain, mark = own_topics(guarded.bootstrap), uuid.uuid4().hex
    async with TokenEndpoint(signer, tls=authority.issue("login", "login")) as endpoint:
        kafka = access(guarded, endpoint, tmp_path, oauth_ca=authority.file)
        with Receiver("forward", plain, tmp_path, {"kafka": kafka}) as receiver:
            await receiver.start()
            await store(receiver, mark)
            assert len(await events(plain, mark)) == 1
            assert len(endpoint.asked) == 1, "its clients share one token"
            assert SECRET not in receiver.said()
        endpoint.instead = (401, "")  # the landing job waits for one, too
        async with landing(plain, kafka, tmp_path, mark, SECRET) as says:
            await says(f"no token from {endpoint.url} ")
            endpoint.instead = None


async def test_tokens_that_end_soon_cost_a_new_connection_and_no_event(
    guarded: GuardedKafka, signer: Signer, tmp_path: Path
) -> None:
    """The broker closes a connection whose token has ended; aiokafka does not log in again on the same one."""
    plain, mark = own_topics(guarded.bootstrap), uuid.uuid4().hex
    async with TokenEndpoint(signer, life=4) as endpoint:
        with Receiver("forward", plain, tmp_path, {"kafka": access(guarded, endpoint, tmp_path)}) as receiver:
            await receiver.start()
            sent = 0
            while len(endpoint.asked) < 4:
                await store(receiver, mark)
                sent += 1
                await asyncio.sleep(0.2)
            assert len(await events(plain, mark)) == sent


async def test_no_token_and_then_one(guarded: GuardedKafka, signer: Signer, tmp_path: Path) -> None:
    plain = own_topics(guarded.bootstrap)
    async with TokenEndpoint(signer) as endpoint:
        endpoint.instead = (503, "later")
        kafka = access(guarded, endpoint, tmp_path, request_timeout=5)
        with Receiver("forward", plain, tmp_path, {"kafka": kafka}) as receiver:
            receiver.spawn()
            assert f"no token from {endpoint.url}: status 503" in await receiver.problem()
            await until(lambda: len(endpoint.asked) > 3, "it tries again")
            (line,) = receiver.told()
            assert line["event"] == "kafka is not usable"
            endpoint.instead = None
            await receiver.listens()
            await store(receiver, uuid.uuid4().hex)


async def test_a_token_that_the_broker_refuses(guarded: GuardedKafka, tmp_path: Path) -> None:
    async with TokenEndpoint(Signer()) as endpoint:
        kafka = access(guarded, endpoint, tmp_path)
        with Receiver("forward", KafkaSettings(), tmp_path, {"kafka": kafka}) as receiver:
            receiver.spawn()
            problem = await receiver.problem()
            assert "the broker does not accept the token" in problem
            assert "\n" not in problem
            assert receiver.exit_status() is None
