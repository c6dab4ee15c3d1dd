"""Tokens for OAUTHBEARER: when the endpoint is asked, and what is said when it gives none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from headrace_common.kafka import tokens as module
from headrace_common.kafka.client import client_arguments
from headrace_common.kafka.tokens import FETCH_TIME, SharedToken, TokenError, shared_token
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.settings import KafkaSettings
from headrace_lake.kafka.source import client_options

from tests.contract.certificates import Authority
from tests.contract.tokens import CLIENT, SECRET, Signer, TokenEndpoint


def by_token(url: str = "http://127.0.0.1:1/token", **other: Any) -> KafkaSettings:
    given = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "oauth_endpoint": url,
        "oauth_client_id": CLIENT,
        "oauth_client_secret": SECRET,
    }
    return KafkaSettings(**{**given, **other})


@pytest.fixture
async def endpoint() -> AsyncIterator[TokenEndpoint]:
    async with TokenEndpoint(Signer(), life=100) as endpoint:
        yield endpoint


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOKEN_PAUSE", 0.0)


def make(
    settings: KafkaSettings, clock: Callable[[], float] = time.monotonic, within: float = FETCH_TIME
) -> SharedToken:
    return SharedToken(settings.oauth_endpoint, partial(module._ask, settings), within, clock)


async def test_one_token_serves_all_until_its_end_or_refusal(endpoint: TokenEndpoint) -> None:
    now = 1000.0
    shared = make(by_token(endpoint.url, oauth_scope="kafka"), lambda: now)
    assert len(set(await asyncio.gather(*(shared.token() for _ in range(20))))) == 1
    for later, asked in ((79.9, 1), (0.2, 2)):
        now += later
        await shared.token()
        assert endpoint.asked == [{"grant_type": "client_credentials", "scope": "kafka"}] * asked
    said = str(await shared.refused(b'{"status":\n"invalid_token"}'))
    assert said.endswith("does not accept the token from " + endpoint.url + ': {"status": "invalid_token"}')
    await shared.token()
    assert len(endpoint.asked) == 3


async def test_the_clients_of_a_process_share_it() -> None:
    assert client_arguments(by_token())["sasl_oauth_token_provider"] is shared_token(by_token())
    assert shared_token(by_token()) is not shared_token(by_token(oauth_scope="other"))
    assert "sasl_plain_password" not in client_arguments(by_token())


async def fails(settings: KafkaSettings, within: float = FETCH_TIME) -> str:
    """What is said: one line that names the endpoint and never the secret."""
    with pytest.raises(TokenError) as raised:
        await make(settings, within=within).token()
    said = str(raised.value)
    assert "\n" not in said
    assert SECRET not in said
    assert len(said) < 500
    assert said.startswith(f"TokenError: no token from {settings.oauth_endpoint}: ")
    return said


async def test_what_gives_none(endpoint: TokenEndpoint) -> None:
    assert "status 401: {" in await fails(by_token(endpoint.url, oauth_client_secret="wrong"))
    assert "Connect" in await fails(by_token())
    endpoint.delay = 600
    assert "no answer within 0.2 s" in await fails(by_token(endpoint.url), 0.2)


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (500, "a\nb" * 1000, "status 500"),
        (302, "", "status 302"),
        (200, "nothing", "no access_token"),
        (200, "[1]", "no access_token"),
        (200, '{"access_token": ""}', "no access_token"),
        (200, '{"access_token": "a\\u0001b"}', "no access_token"),
        *((200, f'{{"access_token": "t", "expires_in": {life}}}', "expires_in is no") for life in ('"soon"', 0, "NaN")),
        (400, f'{{"error": "x {SECRET} x", "error_description": "{"y" * 5000}"}}', "x *** x"),
    ],
)
async def test_an_answer_that_is_none(endpoint: TokenEndpoint, status: int, body: str, says: str) -> None:
    endpoint.instead = (status, body)
    assert says in await fails(by_token(endpoint.url))


async def test_a_ca_that_is_not_its_own(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with TokenEndpoint(Signer(), tls=authority.issue("login", "login")) as endpoint:
        assert "is KAFKA__OAUTH_CA its CA?" in await fails(by_token(endpoint.url))
        assert await make(by_token(endpoint.url, oauth_ca=authority.file)).token()


async def test_a_ca_that_is_not_there_is_a_wrong_setting(tmp_path: Path) -> None:
    for read in (client_arguments, client_options):
        with pytest.raises(ConfigError, match=r"KAFKA__OAUTH_CA .+none"):
            read(by_token(oauth_ca=tmp_path / "none"))


def test_java_logs_in_with_any_secret() -> None:
    """Java would encode ``~`` too, which nobody must, and not every endpoint decodes: what needs no encoding stays as it is."""
    for secret, written, encoded in (('s"\\', 's\\"\\\\', "true"), ("a.b~c", "a.b~c", "false")):
        options = client_options(by_token(oauth_client_secret=secret))
        assert f'clientSecret="{written}"' in options["sasl.jaas.config"]
        assert options["sasl.oauthbearer.header.urlencode"] == encoded
