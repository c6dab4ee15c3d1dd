"""A certificate authority for tests."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization


class Authority:
    """Signs certificates and writes them as PEM files into `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "ca.pem"
        self._signs = trustme.CA()
        self._signs.cert_pem.write_to_path(str(self.file))

    def issue(
        self, name: str, common_name: str | None, dns: str = "localhost", *, days: int = 1, password: str = ""
    ) -> tuple[Path, Path]:
        """Certificate and key, in `name`.pem and `name`.key. Both appear by a rename, as a Kubernetes secret does.

        `days`: how long it is valid. `password`: what the key is encrypted with.
        """
        now = datetime.now(UTC)
        before, after = now - timedelta(hours=1), now + timedelta(days=days)
        made = self._signs.issue_cert(dns, "127.0.0.1", common_name=common_name, not_before=before, not_after=after)
        locked: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            locked = serialization.BestAvailableEncryption(password.encode())
        loaded = serialization.load_pem_private_key(made.private_key_pem.bytes(), None)
        encoded = loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
        files = (self.folder / f"{name}.pem", self.folder / f"{name}.key")
        for path, content in zip(files, (made.cert_chain_pems[0].bytes(), encoded), strict=True):
            part = path.with_suffix(path.suffix + ".part")
            part.write_bytes(content)
            part.rename(path)
        return files

    def server(self, *, asks: bool = False, tickets: int = 2) -> ssl.SSLContext:
        """What a server uses for localhost; with `asks`, its clients must show certificates of this authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue("server", "server"))
        context.num_tickets = tickets
        if asks:
            context.load_verify_locations(self.file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def context(self, client: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """What a client uses that trusts this authority."""
        context = ssl.create_default_context(cafile=str(self.file))
        if client is not None:
            context.load_cert_chain(*client)
        return context
