"""Tokens for SASL OAUTHBEARER, one for all clients of a process: from an endpoint by the grant ``client_credentials`` (RFC 6749,
section 4.4), or from AWS's signer (`msk`).
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import ssl
import time
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from typing import Any, Final
from urllib.parse import quote_plus

from aiokafka import conn as connections
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError
from typing_extensions import override

from headrace_common.kafka import msk
from headrace_common.operations.certificates import trust
from headrace_common.operations.settings import KafkaSettings

FETCH_TIME: Final = 10.0
"""Seconds for one request to the issuer; KAFKA__REQUEST_TIMEOUT if that is less."""

RENEWED: Final = 0.8
"""Share of a token's life after which the next connection asks for a new one."""

UNSAID_LIFE: Final = 300.0
"""Seconds that a token counts as valid if the endpoint does not say how long it is."""

TOKEN_PAUSE: Final = 1.0
"""Seconds that a failure takes longer: aiokafka tries to connect ten times a second."""

Fetch = Callable[[], Awaitable[tuple[str, float]]]
"""Returns a new token, and the seconds from the call on for which it is valid. Raises whatever says why there is none."""


class TokenError(KafkaError):  # type: ignore[misc]  # aiokafka has no types
    """No token could be had, or the broker refuses it. To aiokafka, a failed connection. One line, without the secret."""


class SharedToken(AbstractTokenProvider):  # type: ignore[misc]
    """The token of all clients of Kafka on one event loop: one request at a time, and only when needed."""

    def __init__(
        self, issuer: str, fetch: Fetch, fetch_time: float = FETCH_TIME, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`issuer`: as messages name it. `fetch_time`: seconds for one `fetch`."""
        self._issuer = issuer
        self._fetch = fetch
        self._fetch_time = fetch_time
        self._clock = clock
        self._token = ""
        self._renew_at = 0.0
        self._asking = asyncio.Lock()

    @override
    async def token(self) -> str:
        """Returns a token that is valid now. Waits for the issuer, if that takes a new one. Raises `TokenError`."""
        async with self._asking:
            if (asked := self._clock()) >= self._renew_at:
                try:
                    async with asyncio.timeout(self._fetch_time):
                        self._token, life = await self._fetch()
                except Exception as error:
                    late = f"no answer within {self._fetch_time:g} s"
                    why = late if isinstance(error, TimeoutError) else str(error) or type(error).__name__
                    await asyncio.sleep(TOKEN_PAUSE)
                    raise TokenError(f"no token from {self._issuer}: {' '.join(why.split())[:300]}") from None
                self._renew_at = asked + RENEWED * life
            return self._token

    async def refused(self, words: bytes) -> TokenError:
        """Returns the error of a broker that does not accept the last token. The next connection asks for another one."""
        self._renew_at = 0.0
        await asyncio.sleep(TOKEN_PAUSE)
        said = " ".join(words.decode(errors="replace").split())[:200]
        return TokenError(f"the broker does not accept the token from {self._issuer}: {said}")


async def _ask(settings: KafkaSettings) -> tuple[str, float]:
    """Asks KAFKA__OAUTH_ENDPOINT for a token. Raises `ValueError` for an answer that has none, and what aiohttp raises."""
    import aiohttp  # ten megabytes that only this login needs

    form = {"grant_type": "client_credentials", **({"scope": settings.oauth_scope} if settings.oauth_scope else {})}
    # RFC 6749, section 2.3.1: id and secret as in a form, then as in HTTP's Basic
    secret = settings.oauth_client_secret.get_secret_value()
    basic = base64.b64encode(":".join(map(quote_plus, (settings.oauth_client_id, secret))).encode()).decode()
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=endpoint_tls(settings))) as session,
            session.post(
                settings.oauth_endpoint,
                data=form,
                headers={"Authorization": f"Basic {basic}", "Accept": "application/json"},
                allow_redirects=False,  # the secret goes nowhere else
            ) as answer,
        ):
            status, text = answer.status, await answer.text()
    except aiohttp.ClientSSLError as error:
        raise ValueError(f"{error}; is KAFKA__OAUTH_CA its CA?") from None
    if status != 200:
        raise ValueError(f"status {status}: {text.replace(secret, '***')[:200]}")
    try:
        found = json.loads(text)
        token, life = found["access_token"], float(found.get("expires_in", UNSAID_LIFE))
        if token and token.isascii() and token.isprintable() and 0 < life < math.inf:
            return token, life
    except (ValueError, TypeError, LookupError, AttributeError):
        pass
    raise ValueError("the answer has no access_token, or expires_in is no number of seconds")


def endpoint_tls(settings: KafkaSettings) -> ssl.SSLContext:
    """Returns the context that trusts the endpoint. Reads a file. Raises `ConfigError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust(context, "KAFKA__OAUTH_CA", settings.oauth_ca)
    return context


class _Authenticator(connections.OAuthAuthenticator):  # type: ignore[misc]
    """aiokafka takes a refusal for success: the broker answers without an error code, and says why (RFC 7628, 3.2.2)."""

    @override
    async def step(self, payload: bytes | None) -> Any:
        provider = self._sasl_oauth_token_provider
        if payload and isinstance(provider, SharedToken):
            raise await provider.refused(payload)
        return await super().step(payload)


connections.OAuthAuthenticator = _Authenticator


def shared_token(settings: KafkaSettings) -> SharedToken:
    """Returns the token that all clients with these settings share. Call it inside the event loop. Raises `ConfigError`."""
    return _shared(settings, asyncio.get_running_loop())


@lru_cache
def _shared(settings: KafkaSettings, _: asyncio.AbstractEventLoop) -> SharedToken:
    fetch_time = min(FETCH_TIME, settings.request_timeout)
    if settings.by_iam:
        return SharedToken("AWS's signer", msk.signer(), fetch_time)
    endpoint_tls(settings)
    return SharedToken(settings.oauth_endpoint, partial(_ask, settings), fetch_time)
