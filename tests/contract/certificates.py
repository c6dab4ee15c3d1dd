"""A certificate authority for tests."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates and writes them as PEM files into `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "ca.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self._certificate = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, name: str, common_name: str | None, dns: str = "localhost", *, days: int = 1, password: str = ""
    ) -> tuple[Path, Path]:
        """Certificate and key, in `name`.pem and `name`.key. Both appear by a rename, as a Kubernetes secret does.

        `days`: how long it is valid; negative: since when it is not. `password`: what the key is encrypted with.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Headrace's tests")]
        if common_name is not None:
            attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
        names = [x509.DNSName(dns), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        certificate = (
            _builder(x509.Name(attributes), self._name, key.public_key(), days)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        locked: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            locked = serialization.BestAvailableEncryption(password.encode())
        encoded = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
        files = (self.folder / f"{name}.pem", self.folder / f"{name}.key")
        for path, content in zip(files, (certificate.public_bytes(serialization.Encoding.PEM), encoded), strict=True):
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


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int = 1
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(
            now + min(datetime.timedelta(days=days - 1), datetime.timedelta()) - datetime.timedelta(hours=1)
        )
        .not_valid_after(now + datetime.timedelta(days=days))
    )
