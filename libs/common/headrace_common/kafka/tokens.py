"""Tokens for SASL OAUTHBEARER, one for all clients of a process; from a token endpoint by the grant ``client_credentials``
(RFC 6749, section 4.4), or from another `SharedToken`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote_plus
from weakref import WeakKeyDictionary

from aiokafka import conn as connections
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError
from typing_extensions import override

from headrace_common.kafka.access import trust
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.settings import KafkaSettings

FETCH_TIME: Final = 10.0
"""Seconds for one request to the endpoint; KAFKA__REQUEST_TIMEOUT if that is less."""

RENEWED: Final = 0.8
"""Share of a token's life after which the next connection asks for a new one."""

UNSAID_LIFE: Final = 300.0
"""Seconds that a token counts as valid if the endpoint does not say how long it is."""

PAUSE: Final = 1.0
"""Seconds after a failure in which the endpoint is not asked again: aiokafka tries to connect ten times a second."""

_MOST: Final = 1 << 20
"""Bytes of an answer; a longer one is refused."""


class TokenError(KafkaError):  # type: ignore[misc]  # aiokafka has no types
    """No token could be had, or the broker refuses it. To aiokafka, a failed connection. One line, without the secret."""


class SharedToken(AbstractTokenProvider, ABC):  # type: ignore[misc]
    """The token of all clients of Kafka on one event loop: one request at a time, and only when needed."""

    def __init__(self, settings: KafkaSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._token = ""
        self._renew_at = self._ends_at = 0.0
        self._fetching: asyncio.Task[None] | None = None
        self._problem = ""
        self._quiet_until = -math.inf

    @property
    @abstractmethod
    def origin(self) -> str:
        """The issuer of the token, as messages name it."""

    @abstractmethod
    async def fetch(self) -> tuple[str, float]:
        """Returns a new token, and the seconds from the call on for which it is valid. Waits for `fetch_time` at most. Raises
        `TokenError`, made by `error`.
        """

    @property
    def fetch_time(self) -> float:
        """Seconds for one `fetch`."""
        return min(FETCH_TIME, self._settings.request_timeout)

    @override
    async def token(self) -> str:
        """Returns a token that is valid now. Waits for the endpoint, at most `FETCH_TIME`, if that takes a new one.

        Raises `TokenError`, but not while the last token is still valid.
        """
        if self._clock() >= self._renew_at:
            try:
                await self._renew()
            except TokenError:
                if self._clock() >= self._ends_at:
                    raise
        return self._token

    async def _renew(self) -> None:
        if self._fetching is None:
            if self._clock() < self._quiet_until:
                raise TokenError(self._problem)
            self._fetching = asyncio.create_task(self._fetch())
            self._fetching.add_done_callback(self._fetched)
        await asyncio.shield(self._fetching)

    def refused(self, words: bytes) -> TokenError:
        """Returns the error of a broker that does not accept the last token. The next connection asks for another one."""
        self._renew_at = self._ends_at = 0.0
        said = " ".join(words.decode(errors="replace").split())[:200]
        return self._failed(f"the broker does not accept the token from {self.origin}: {said}")

    def _failed(self, problem: str) -> TokenError:
        self._problem = problem
        self._quiet_until = self._clock() + PAUSE
        return TokenError(problem)

    def _fetched(self, task: asyncio.Task[None]) -> None:
        self._fetching = None
        if not task.cancelled():
            task.exception()  # the caller may have gone: asyncio shall not log it as never retrieved

    async def _fetch(self) -> None:
        asked = self._clock()
        token, life = await self.fetch()
        self._token = token
        self._renew_at, self._ends_at = asked + RENEWED * life, asked + life

    def error(self, why: str) -> TokenError:
        """Returns the error that says why there is no token. Calls within the next `PAUSE` fail with it, too."""
        return self._failed(f"no token from {self.origin}: {' '.join(why.split())[:300]}")


class Tokens(SharedToken):
    """Tokens of one client id, from KAFKA__OAUTH_ENDPOINT."""

    @property
    @override
    def origin(self) -> str:
        return self._settings.oauth_endpoint

    @override
    async def fetch(self) -> tuple[str, float]:
        answer = await self._ask()
        token, life = answer.get("access_token"), answer.get("expires_in", UNSAID_LIFE)
        if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
            raise self.error("the answer has no access_token")
        try:
            life = float(life)
        except (TypeError, ValueError):
            life = 0.0
        if not 0 < life < math.inf:
            raise self.error("expires_in is no number of seconds")
        return token, life

    async def _ask(self) -> dict[str, Any]:
        import aiohttp  # ten megabytes that only this login needs

        settings = self._settings
        form = {"grant_type": "client_credentials", **({"scope": settings.oauth_scope} if settings.oauth_scope else {})}
        timeout = aiohttp.ClientTimeout(total=self.fetch_time)
        try:
            tls = endpoint_tls(settings)
        except ConfigError as error:  # the file was there at the start
            raise self.error(str(error)) from None
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(ssl=tls)) as session,
                session.post(
                    settings.oauth_endpoint,
                    data=form,
                    headers={"Authorization": f"Basic {_credentials(settings)}", "Accept": "application/json"},
                    allow_redirects=False,  # the secret goes nowhere else
                ) as answer,
            ):
                body = b""
                async for piece in answer.content.iter_any():
                    body += piece
                    if len(body) > _MOST:
                        raise self.error(f"an answer of more than {_MOST} bytes")
                status = answer.status
        except TimeoutError:
            raise self.error(f"no answer within {timeout.total:g} s") from None
        except aiohttp.ClientSSLError as error:
            raise self.error(f"{error}; is KAFKA__OAUTH_CA its CA?") from None
        except (aiohttp.ClientError, OSError) as error:
            raise self.error(str(error) or type(error).__name__) from None
        try:
            found = json.loads(body)
        except ValueError:
            found = None
        found = found if isinstance(found, dict) else {}
        if status != 200:
            raise self.error(_refusal(status, found))
        return found

    @override
    def error(self, why: str) -> TokenError:
        return super().error(why.replace(self._settings.oauth_client_secret.get_secret_value(), "***"))


def endpoint_tls(settings: KafkaSettings) -> ssl.SSLContext:
    """Returns the context that trusts the endpoint. Reads a file. Raises `ConfigError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust(context, "KAFKA__OAUTH_CA", settings.oauth_ca)
    return context


def _refusal(status: int, answer: dict[str, Any]) -> str:
    """Returns the endpoint's refusal in words, by RFC 6749, section 5.2."""
    words = [str(answer[name]) for name in ("error", "error_description") if answer.get(name)]
    hint = "; are KAFKA__OAUTH_CLIENT_ID and KAFKA__OAUTH_CLIENT_SECRET right?" if status in (400, 401, 403) else ""
    return f"{': '.join([f'status {status}', *words])[:200]}{hint}"


def _credentials(settings: KafkaSettings) -> str:
    """Returns id and secret by RFC 6749, section 2.3.1: both as in a form, then as in HTTP's Basic."""
    pair = (settings.oauth_client_id, settings.oauth_client_secret.get_secret_value())
    return base64.b64encode(":".join(map(quote_plus, pair)).encode()).decode()


class _Authenticator(connections.OAuthAuthenticator):  # type: ignore[misc]
    """aiokafka takes a refusal for success: the broker answers without an error code, and says why (RFC 7628, 3.2.2)."""

    @override
    async def step(self, payload: bytes | None) -> Any:
        provider = self._sasl_oauth_token_provider
        if payload and isinstance(provider, SharedToken):
            raise provider.refused(payload)
        return await super().step(payload)


connections.OAuthAuthenticator = _Authenticator

_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[KafkaSettings, SharedToken]] = WeakKeyDictionary()


def shared_tokens(settings: KafkaSettings, make: Callable[[KafkaSettings], SharedToken] = Tokens) -> SharedToken:
    """Returns the tokens that all clients with these settings share. Call it inside the event loop. Raises `ConfigError`."""
    if settings.oauth_ca is not None:
        endpoint_tls(settings)
    known = _shared.setdefault(asyncio.get_running_loop(), {})
    if settings not in known:
        known[settings] = make(settings)
    return known[settings]
