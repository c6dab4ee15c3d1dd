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
        signer = _authority(made)
        names = _names(host)
        if not _is_usable(made.server[0], signer[0], names):
            use = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
            _make(made.server, "headrace", CERTIFICATE_DAYS, signer, use, x509.SubjectAlternativeName(names))
        if not _is_usable(made.client[0], signer[0], []):
            use = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
            _make(made.client, "headrace-client", CERTIFICATE_DAYS, signer, use)
    except (OSError, ValueError) as error:
        raise CommandError(f"The certificates in {folder} cannot be used: {error}.") from error
    return made


Signer = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def _authority(made: Certificates) -> Signer:
    key_file = made.folder / "ca.key"
    if made.ca.exists() and key_file.exists():
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{key_file.name} is not a key that Headrace made")
        return x509.load_pem_x509_certificate(made.ca.read_bytes()), key
    called = f"Headrace on {own_name()}".encode()[:64].decode(errors="ignore")
    return _make((made.ca, key_file), called, CA_DAYS, None)


def _make(files: tuple[Path, Path], name: str, days: int, signer: Signer | None, *more: x509.ExtensionType) -> Signer:
    """Make a certificate, which `signer` signs, and its key; without a signer it is an authority, which signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, issuer_key = (subject, key) if signer is None else (signer[0].subject, signer[1])
    now = datetime.datetime.now(datetime.UTC)
    own = signer is None
    usage = x509.KeyUsage(
        digital_signature=not own, key_cert_sign=own, crl_sign=own, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    identifier = (
        x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        if own
        else x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # a client's clock may be behind
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=own, path_length=0 if own else None), critical=True)
        .add_extension(usage, critical=True)
    )
    for extension in (identifier, *more):
        builder = builder.add_extension(extension, critical=False)
    certificate = builder.sign(issuer_key, hashes.SHA256())
    plain = serialization.NoEncryption()
    replace_file(files[1], key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    replace_file(files[0], certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    return certificate, key


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
