"""TLS in the simulation: OpenSSL on both sides, records cut where the network cuts. All sizes are those of the seed: the keys are
Ed25519, whose signatures all have one length, and TLS 1.3 has no other that varies.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import ssl
import tempfile
from pathlib import Path
from typing import Any, Final, cast

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID
from headrace_common.listening import listener, secured
from headrace_common.service import service

from tests.simulation.network import ClientEnd, Line, Network


@functools.cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The receiver's, and a client's."""
    key, name = Ed25519PrivateKey.generate(), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "simulated")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    since, until = datetime.datetime(2020, 1, 1), datetime.datetime(2049, 1, 1)
    signed = builder.serial_number(1).not_valid_before(since).not_valid_after(until).sign(key, None)
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    pem = serialization.Encoding.PEM
    with tempfile.TemporaryDirectory() as folder:
        both = Path(folder) / "both.pem"
        private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        both.write_bytes(private + signed.public_bytes(pem))
        server.load_cert_chain(both)
    server.num_tickets = 0
    server.minimum_version = client.minimum_version = ssl.TLSVersion.TLSv1_3
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    return server, client


class Listener(listener.Listener):
    """In place of the receivers' `Listener`."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*(*given[:-1], contexts()[0]))


IN_PLACE: Final = ((service, "Listener", Listener), (secured, "PIECE", 500), (secured, "SLICE", 0.0))
"""What is replaced, and by what: of the little that comes at once, a part waits for another turn of the loop."""


LEAST: Final = 400
"""Longest piece of a line that cuts the most. By a few bytes each, a handshake takes longer than LIMITS__HANDSHAKE_TIME, of which
a client that has ended its own part of it learns too late.
"""


async def connect(network: Network, line: Line, whose: Any, port: int | None) -> ClientEnd:
    """As `Network.connect`; returns once both speak TLS. Raises `ConnectionError`."""
    line.piece = max(line.piece, LEAST)
    end = await network.connect(line, whose, port)
    longest, says_end = whose.chance.choice((100, 1 << 14)), whose.chance.random() < 0.7
    made = SecuredEnd(end, longest, says_end=says_end)
    try:
        await made.shake()
    except BaseException:
        end.abort()
        raise
    return cast("ClientEnd", made)


class SecuredEnd:
    """A client's end, as `ClientEnd`. `longest`: bytes of a record. `says_end`: it says close_notify before it closes."""

    def __init__(self, end: ClientEnd, longest: int, *, says_end: bool) -> None:
        self._end = end
        self._longest = longest
        self._says_end = says_end
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = contexts()[1].wrap_bio(self._incoming, self._outgoing)
        self._version = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._end, name)

    async def shake(self) -> None:
        """Raises `ConnectionError`."""
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                self._tls.do_handshake()
                break
            await self._end.send(self._outgoing.read())
            if not await self._more():
                raise ConnectionResetError
        await self._end.send(self._outgoing.read())

    async def _more(self) -> bool:
        data, self._version = await self._end.read()
        self._incoming.write(data)
        return bool(data)

    async def send(self, data: bytes) -> None:
        await self._end.send(self._encrypted(data))

    def _encrypted(self, data: bytes) -> bytes:
        for at in range(0, len(data), self._longest):
            self._tls.write(data[at : at + self._longest])
        return self._outgoing.read()

    async def read(self) -> tuple[bytes, int]:
        while True:
            try:
                return self._tls.read(1 << 14), self._version
            except ssl.SSLWantReadError:
                if not await self._more():
                    return b"", self._version
            except ssl.SSLZeroReturnError:
                return b"", self._version

    def _say_end(self) -> None:
        if self._says_end:
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            if not self._end.broken:
                self._end.send_now(self._outgoing.read())

    def write_eof(self) -> None:
        self._say_end()
        self._end.write_eof()

    def close(self) -> None:
        if not self._end.ended:
            self._say_end()
        self._end.close()
