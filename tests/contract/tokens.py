"""A token endpoint for tests, with tokens that a broker can check."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from aiohttp import web
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

CLIENT, SECRET = "headrace", "a secret+with: signs"
_ENCODED = b"headrace:a+secret%2Bwith%3A+signs"  # RFC 6749, section 2.3.1


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _number(value: int) -> str:
    return _text(value.to_bytes((value.bit_length() + 7) // 8, "big"))


class Signer:
    """Signs tokens (RS256), and says in `keys` how to check them."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(65537, 2048)

    @property
    def keys(self) -> str:
        """A JWKS."""
        public = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "kid": "k", "use": "sig", "alg": "RS256", "n": _number(public.n), "e": _number(public.e)}
        return json.dumps({"keys": [key]})

    def token(self, seconds: float) -> str:
        now = int(time.time())
        claims = {"sub": CLIENT, "iat": now, "exp": now + int(seconds), "scope": "kafka", "aud": "brokers"}
        parts = [{"alg": "RS256", "kid": "k", "typ": "JWT"}, claims]
        signed = ".".join(_text(json.dumps(part).encode()) for part in parts)
        return f"{signed}.{_text(self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


class TokenEndpoint:
    """Gives a token to who knows the secret: ``async with TokenEndpoint(signer) as endpoint``.

    `life`: seconds that a token is valid; `delay`: before it answers; `instead`: an answer (status, body) in place of a token.
    """

    def __init__(self, signer: Signer, *, life: float = 3600, tls: tuple[Path, Path] | None = None) -> None:
        self.signer = signer
        self.life = life
        self.delay = 0.0
        self.instead: tuple[int, str] | None = None
        self.asked: list[Mapping[str, Any]] = []
        self.url = ""
        self._tls = tls

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_post("/token", self._answer)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        context = None
        if self._tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._tls)
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context).start()
        port = self._runner.addresses[0][1]
        self.url = f"{'http' if context is None else 'https'}://127.0.0.1:{port}/token"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(dict(await request.post()))
        await asyncio.sleep(self.delay)
        if self.instead is not None:
            return web.Response(status=self.instead[0], text=self.instead[1])
        if request.headers.get("Authorization") != f"Basic {base64.b64encode(_ENCODED).decode()}":
            refusal = {"error": "invalid_client", "error_description": "Invalid\nclient"}
            return web.json_response(refusal, status=401)
        given = {"access_token": self.signer.token(self.life), "token_type": "Bearer", "expires_in": self.life}
        return web.json_response(given)
