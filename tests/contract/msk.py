"""A door like Amazon MSK's in front of a broker that asks nothing: TLS, and both of its mechanisms.

With OAUTHBEARER, a client shows a token of AWS's signer; with AWS_MSK_IAM, which only AWS's Java library speaks, the same words
as JSON. The words are read, their signature is not checked: that takes AWS.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import struct
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from typing_extensions import override

from tests.system.proxy import HOST, Proxy, Stream

LIFE: Final = 900
"""Seconds for which a token is valid at most."""

_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36
_MECHANISMS: Final = (b"OAUTHBEARER", b"AWS_MSK_IAM")
_FLEXIBLE: Final = 2
"""From this version on, SaslAuthenticate has tagged fields and compact lengths (KIP-482)."""


def fault_of(token: str, region: str) -> str:
    """What MSK would find wrong with a token, its signature apart; empty: nothing. It is a URL in base64url, without padding."""
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    assert (url.scheme, url.path) == ("https", "/")
    if url.netloc != f"kafka.{region}.amazonaws.com":
        return f"made for {url.netloc}"
    return fault_in({name: values[0] for name, values in parse_qs(url.query).items()}, region)


def fault_in(says: Mapping[str, str], region: str) -> str:
    """The same for what a token says."""
    made = datetime.strptime(says["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    life = int(says["X-Amz-Expires"])
    if not 0 < life <= LIFE or not made - 60 <= time.time() <= made + life:
        return "not valid now"
    scope = says["X-Amz-Credential"].split("/", 2)[2]
    signed = says["X-Amz-Algorithm"], scope, len(says["X-Amz-Signature"]), says["Action"]
    right = "AWS4-HMAC-SHA256", f"{region}/kafka-cluster/aws4_request", 64, "kafka-cluster:Connect"
    return "" if signed == right else f"signed as {signed}"


class Door(Proxy):
    """``async with Door(behind, port, …)``: `behind` is the broker's listener, `port` the one that it advertises."""

    def __init__(self, behind: int, port: int, region: str, certificate: tuple[Path, Path]) -> None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*certificate)
        super().__init__((HOST, behind), port, tls)
        self._region = region
        self.tokens: list[str] = []
        """That clients have shown."""
        self.mechanisms: list[bytes] = []
        self.hosts: list[str] = []
        """Of brokers, as Java's clients name them in what they sign."""

    @override
    async def _forward(self, near: Stream, far: Stream) -> None:
        await self._login(*near, *far)
        await super()._forward(near, far)

    async def _login(
        self, reader: StreamReader, writer: StreamWriter, far_reader: StreamReader, far_writer: StreamWriter
    ) -> None:
        """Until a token is good. Questions before that, about the versions, go to the broker."""
        while True:
            frame = await _frame(reader)
            kind, version, correlation, client = struct.unpack_from(">hhih", frame)
            body = frame[10 + max(0, client) :]
            if kind == _SASL_HANDSHAKE:
                self.mechanisms.append(body[2:])
                listed = b"".join(struct.pack(">h", len(name)) + name for name in _MECHANISMS)
                _say(writer, struct.pack(">ihi", correlation, 0, len(_MECHANISMS)) + listed)
            elif kind == _SASL_AUTHENTICATE:
                flexible = version >= _FLEXIBLE
                fault, answer = self._judge(_compact(body[1:]) if flexible else body[4:])
                _say(writer, _authenticated(correlation, answer, flexible=flexible))
                if not fault:
                    return
                await _frame(reader)  # what a client says to a refusal
                raise ConnectionError
            else:
                _say(far_writer, frame)
                _say(writer, await _frame(far_reader))

    def _judge(self, said: bytes) -> tuple[str, bytes]:
        """What is wrong with a client's words, and what to answer. A refusal is no error, but words (RFC 7628, 3.2.2)."""
        if said.startswith(b"{"):
            words = json.loads(said)
            self.hosts.append(words["host"])
            signed = {name.title(): text for name, text in words.items() if name.startswith("x-amz-")}
            fault = fault_in({"Action": words["action"], **signed}, self._region)
            return fault, json.dumps({"version": words["version"], "request-id": fault or "1"}).encode()
        assert said.startswith(b"n,,\x01auth=Bearer ")
        self.tokens.append(said.split(b"\x01")[1].removeprefix(b"auth=Bearer ").decode())
        fault = fault_of(self.tokens[-1], self._region)
        return fault, fault.encode()


def _compact(data: bytes) -> bytes:
    """Bytes behind their length, as KIP-482 writes it: one more than it is, seven bits at a time, the lowest first."""
    size = shift = place = 0
    while True:
        size |= (data[place] & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if data[place - 1] < 0x80:
            return data[place : place + size - 1]


def _authenticated(correlation: int, answer: bytes, *, flexible: bool) -> bytes:
    """The answer to SaslAuthenticate: no message, and how long the session may last."""
    life = struct.pack(">q", 1000 * LIFE)
    if not flexible:
        return struct.pack(">ihhi", correlation, 0, -1, len(answer)) + answer + life
    assert len(answer) < 0x7F
    return struct.pack(">ibhbb", correlation, 0, 0, 0, len(answer) + 1) + answer + life + b"\0"


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def _say(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(struct.pack(">i", len(frame)) + frame)
