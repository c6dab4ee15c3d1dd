"""The stack's own certificate authority and CURVE keys, for trying encryption on one machine. They are made once and kept."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import zmq
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from headrace_common.operations.tasks import own_name

from headrace_cli.ground import CommandError
from headrace_cli.stack.state import replace_file

CA_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 397
"""Days that the server's and the client's certificate are valid: the longest time that clients accept."""

RENEW_DAYS: Final = 30
"""A start renews a certificate that is valid for fewer days than this."""

CLIENT: Final = "client"
"""The name of the client that has the other pair of keys, in the source of its events."""


@dataclass(frozen=True)
class Certificates:
    """PEM files: the authority that clients trust, the receivers' certificate, and a certificate for a client."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def server(self) -> tuple[Path, Path]:
        return self.folder / "server.pem", self.folder / "server.key"

    @property
    def client(self) -> tuple[Path, Path]:
        return self.folder / "client.pem", self.folder / "client.key"


def ensure(folder: Path, host: str) -> Certificates:
    """Make the certificates that are missing, expire soon or do not name `host`. Keep an existing authority.

    Raises `CommandError` when the folder cannot be used.
    """
    made = Certificates(folder)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority, key = _authority(made)
        names = _names(host)
        if not _is_usable(made.server[0], authority, names):
            _issue(made.server, "headrace", names, authority, key, ExtendedKeyUsageOID.SERVER_AUTH)
        if not _is_usable(made.client[0], authority, []):
            _issue(made.client, "headrace-client", [], authority, key, ExtendedKeyUsageOID.CLIENT_AUTH)
    except (OSError, ValueError) as error:
        raise CommandError(f"The certificates in {folder} cannot be used: {error}.") from error
    return made


def _authority(made: Certificates) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key_file = made.folder / "ca.key"
    if made.ca.exists() and key_file.exists():
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{key_file.name} is not a key that Headrace made")
        return x509.load_pem_x509_certificate(made.ca.read_bytes()), key
    key = ec.generate_private_key(ec.SECP256R1())
    called = f"Headrace on {own_name()}".encode()[:64].decode(errors="ignore")
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, called)])
    public = key.public_key()
    certificate = (
        _builder(name, name, public, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(_key_usage(authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    replace_file(key_file, _pem(key))
    replace_file(made.ca, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    return certificate, key


def _issue(
    files: tuple[Path, Path],
    common_name: str,
    names: list[x509.GeneralName],
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    use: x509.ObjectIdentifier,
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = (
        _builder(subject, authority.subject, key.public_key(), CERTIFICATE_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(authority_key, hashes.SHA256())
    replace_file(files[1], _pem(key))
    replace_file(files[0], certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # a client's clock may be behind
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority, key_cert_sign=authority, crl_sign=authority, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _names(host: str) -> list[x509.GeneralName]:
    """Return the names by which clients may call the receivers, from this machine or through `host`."""
    own = own_name()
    found: list[x509.GeneralName] = [x509.DNSName(name) for name in ("localhost", own) if name.isascii()]
    addresses = {"127.0.0.1", "::1"}
    try:
        addresses.add(str(ipaddress.ip_address(host)))
    except ValueError:
        found.append(x509.DNSName(host))
    return [*found, *(x509.IPAddress(ipaddress.ip_address(address)) for address in sorted(addresses))]


def _is_usable(path: Path, authority: x509.Certificate, names: list[x509.GeneralName]) -> bool:
    """Return whether the certificate exists, is of this authority, stays valid for `RENEW_DAYS` and names `names`."""
    if not path.exists():
        return False
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    if certificate.issuer != authority.subject or left < datetime.timedelta(days=RENEW_DAYS):
        return False
    if not names:
        return True
    named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return set(names) <= set(named)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@dataclass(frozen=True)
class CurveKeys:
    """Files of one line, each a key in Z85: the receiver's pair and a client's."""

    folder: Path

    @property
    def server(self) -> tuple[Path, Path]:
        """The public and the secret key."""
        return self.folder / "curve.pub", self.folder / "curve.key"

    @property
    def client(self) -> tuple[Path, Path]:
        return self.folder / "curve-client.pub", self.folder / "curve-client.key"


def ensure_curve(folder: Path) -> CurveKeys:
    """Make the pairs that are missing. Raises `CommandError` when the folder cannot be used."""
    made = CurveKeys(folder)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for public, secret in (made.server, made.client):
            if not secret.exists():
                replace_file(secret, zmq.curve_keypair()[1] + b"\n")
            replace_file(public, zmq.curve_public(secret.read_bytes().strip()) + b"\n", 0o644)
    except (OSError, ValueError, zmq.ZMQError) as error:
        raise CommandError(f"The keys in {folder} cannot be used: {error}.") from error
    return made
