"""Certificates and keys in PEM files: loaded with a sentence for each fault, watched while the process runs."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from headrace_common.operations.errors import ConfigError
from headrace_common.operations.settings import KafkaSettings

LOOK_EVERY: Final = 1.0
"""Seconds between two checks of the files. A check happens when a connection is made."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate with its chain, and its private key, as settings name them. `section`: the prefix of their names."""

    section: str
    certificate: tuple[str, Path]
    key: tuple[str, Path]
    password: str = field(default="", repr=False)

    def load_into(self, context: ssl.SSLContext) -> None:
        """Makes `context` present the certificate. Reads files. Raises `ConfigError`, which names the file and its fault."""
        certificate, key = (f"{self.section}__{name} {path}" for name, path in (self.certificate, self.key))
        for said, (_, path) in ((certificate, self.certificate), (key, self.key)):
            try:
                path.read_bytes()
            except OSError as error:
                raise ConfigError(f"{said}: {error.strerror}") from error
        try:
            context.load_cert_chain(self.certificate[1], self.key[1], password=self._tell)
        except OSError as error:
            if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
                raise ConfigError(f"{key} does not belong to {certificate}") from error
            if not _readable(self.certificate[1]):
                raise ConfigError(f"{certificate} has no certificate in PEM in it") from error
            secret = f" that {self.section}__KEY_PASSWORD opens" if self.password else ""
            raise ConfigError(f"{key} has no private key in PEM{secret} in it") from error

    def ends(self) -> float:
        """Returns the Unix time when the certificate expires; 0 if the file cannot be read now. Reads it."""
        try:
            return expiry(self.certificate[1])
        except OSError:  # `load_into` says it
            return 0.0

    def expired(self) -> str | None:
        """Returns a sentence if the certificate has expired: the other side will refuse it."""
        name, path = self.certificate
        ended = self.ends()
        if not ended or ended >= time.time():
            return None
        return (
            f"{self.section}__{name} {path} has expired at {datetime.fromtimestamp(ended, UTC):%Y-%m-%d %H:%M:%S} UTC"
        )

    def _tell(self) -> str:
        if not self.password:
            raise ConfigError(
                f"{self.section}__{self.key[0]} {self.key[1]} is encrypted, and there is no password for it"
            )
        return self.password


def kafka_key_pair(settings: KafkaSettings) -> KeyPair | None:
    """Returns the certificate that Kafka's clients show to brokers; None if the settings name none."""
    if settings.certificate is None or settings.key is None:
        return None
    password = settings.key_password.get_secret_value()
    return KeyPair("KAFKA", ("CERTIFICATE", settings.certificate), ("KEY", settings.key), password)


class WatchedFiles:
    """Says whether files have changed since it was last asked; looks at them at most once in `LOOK_EVERY` seconds."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = tuple(files)
        self._stamps = self._look()
        self._looked = time.monotonic()

    def changed(self) -> bool:
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY:
            return False
        self._looked = now
        before, self._stamps = self._stamps, self._look()
        return before != self._stamps

    def _look(self) -> list[tuple[int, int, int]]:
        # Kubernetes replaces a symbolic link; stat follows it, so inode and time change.
        return [_stamp(path) for path in self._files]


def expiry(certificate: Path) -> float:
    """Returns the Unix time when the first certificate of the PEM file expires. Raises `OSError`, also if there is none."""
    decoded = ssl._ssl._test_decode_cert(str(certificate))  # type: ignore[attr-defined]  # the standard library offers no public function
    return datetime.strptime(decoded["notAfter"], "%b %d %H:%M:%S %Y %Z").replace(tzinfo=UTC).timestamp()


def _readable(certificate: Path) -> bool:
    try:
        expiry(certificate)
    except OSError:
        return False
    return True


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_mtime_ns, status.st_ino, status.st_size)
