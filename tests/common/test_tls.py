"""TLS: who a client is, and files that change."""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from headrace_common.listening.tls import TlsContext, identity
from headrace_common.operations import certificates
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import TlsSettings


def certificate(*subject: tuple[str, str], names: tuple[tuple[str, str], ...] = ()) -> dict[str, Any]:
    return {"subject": tuple((pair,) for pair in subject), "subjectAltName": names}


ORGANIZATION, DNS = ("organizationName", "O"), (("IP Address", "10.0.0.1"), ("DNS", "first"), ("DNS", "second"))


@pytest.mark.parametrize(
    ("shown", "name"),
    [
        (None, None),
        ({}, None),
        (certificate(ORGANIZATION, ("commonName", "c"), names=DNS), "c"),
        (certificate(ORGANIZATION, names=DNS), "first"),
        (certificate(("commonName", ""), names=DNS), "first"),
        (certificate(("countryName", "C"), ORGANIZATION), "countryName=C,organizationName=O"),
        (certificate(names=(("URI", "spiffe://x"),)), None),
    ],
)
def test_a_client_is_its_common_name_else_a_dns_name_else_its_subject(shown: Any, name: str | None) -> None:
    assert identity(shown) == name


class Files:
    """A server's certificate and key in a folder, made again at will."""

    def __init__(self, folder: Path) -> None:
        self.cert, self.key = folder / "cert.pem", folder / "key.pem"
        self.made = 0

    def make(self, days: int = 30) -> datetime:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"server {self.made}")])
        ends = (datetime.now(UTC) + timedelta(days=days)).replace(microsecond=0)
        built = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(datetime.now(UTC) - timedelta(days=10))
            .not_valid_after(ends)
            .sign(key, hashes.SHA256())
        )
        plain = serialization.NoEncryption()
        pem = serialization.Encoding.PEM
        self.write(self.key, key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
        self.write(self.cert, built.public_bytes(pem))
        return ends

    def write(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)
        self.made += 1
        os.utime(path, ns=(self.made * 10**9, self.made * 10**9))  # a time of its own, however fast this goes

    @property
    def settings(self) -> TlsSettings:
        return TlsSettings(cert=self.cert, key=self.key)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setattr(certificates, "LOOK", 0.0)
    made = Files(tmp_path)
    made.make()
    return made


def context(files: Files, **settings: Any) -> tuple[TlsContext, ReceiverMetrics]:
    metrics = ReceiverMetrics()
    log = structlog.get_logger()
    return TlsContext(files.settings.model_copy(update=settings), metrics, log), metrics


def expiry(metrics: ReceiverMetrics) -> float | None:
    return metrics.registry.get_sample_value("headrace_certificate_expiry_timestamp_seconds")


class TestContext:
    def test_one_that_has_expired_is_named(self, files: Files) -> None:
        with structlog.testing.capture_logs() as lines:
            context(files)
            assert lines == []
            files.make(days=-1)
            context(files)
        assert [(line["log_level"], str(files.cert) in line["problem"]) for line in lines] == [("warning", True)]

    def test_files_that_change_give_a_new_one(self, files: Files) -> None:
        made, metrics = context(files)
        before = made.current()
        ends = files.make(days=60)
        assert made.current() is not before
        assert expiry(metrics) == ends.timestamp()
        assert made.current() is made.current()

    def test_files_that_cannot_be_used_leave_the_former_in_place(self, files: Files) -> None:
        made, _ = context(files)
        before, key = made.current(), files.key.read_bytes()
        for bad in (b"", b"half a key", key[:100]):
            files.write(files.key, bad)
            assert made.current() is before
        files.key.unlink()
        assert made.current() is before
        files.make()
        assert made.current() is not before

    def test_a_certificate_that_is_replaced_before_its_key(self, files: Files) -> None:
        made, _ = context(files)
        before, key = made.current(), files.key.read_bytes()
        files.make()
        files.write(files.key, key)
        assert made.current() is before

    def test_files_that_cannot_be_used_at_the_start(self, files: Files) -> None:
        files.write(files.cert, b"nothing")
        with pytest.raises(ConfigError, match=r"cert\.pem"):
            context(files)
        files.cert.unlink()
        with pytest.raises(ConfigError, match=r"cert\.pem"):
            context(files)

    def test_an_encrypted_key_is_not_asked_a_password_for(self, files: Files) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        locked = serialization.BestAvailableEncryption(b"pw")
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
        files.write(files.key, pem)
        with pytest.raises(ConfigError, match="encrypted"):
            context(files)

    def test_the_lowest_version(self, files: Files) -> None:
        assert context(files)[0].current().minimum_version is ssl.TLSVersion.TLSv1_2
        assert context(files, minimum="1.3")[0].current().minimum_version is ssl.TLSVersion.TLSv1_3
