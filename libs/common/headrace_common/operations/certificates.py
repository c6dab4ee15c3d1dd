"""Certificates and keys in PEM files: loaded with a sentence for each fault, and again when they change."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from headrace_common.operations.errors import ConfigError
from headrace_common.operations.settings import KafkaSettings

LOOK_EVERY: Final = 1.0
"""Seconds between two checks of the files. A check happens when a connection is made."""

_log = logging.getLogger("headrace.tls")


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
            if not self.ends():
                raise ConfigError(f"{certificate} has no certificate in PEM in it") from error
            secret = f" that {self.section}__KEY_PASSWORD opens" if self.password else ""
            raise ConfigError(f"{key} has no private key in PEM{secret} in it") from error

    def ends(self) -> float:
        """Returns the Unix time when the first certificate of the file expires; 0 if it cannot be read now. Reads it."""
        try:  # the standard library offers no public function
            decoded = ssl._ssl._test_decode_cert(str(self.certificate[1]))  # type: ignore[attr-defined]
        except OSError:  # `load_into` says it
            return 0.0
        return datetime.strptime(decoded["notAfter"], "%b %d %H:%M:%S %Y %Z").replace(tzinfo=UTC).timestamp()

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


def trust(context: ssl.SSLContext, setting: str, ca: Path | None) -> None:
    """Makes `context` trust the CA in a file, the system's without one. Raises `ConfigError`, which names `setting`."""
    try:
        if ca is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(ca)
    except OSError as error:
        raise ConfigError(f"{setting} {ca}: {error}") from error


class ReloadingContext:
    """The TLS context of new connections, loaded again when its files change. Existing connections keep theirs.

    If the new files are unusable (half written, or key and certificate do not match), the former context stays.
    """

    def __init__(self, load: Callable[[], ssl.SSLContext], pair: KeyPair | None, ca: Path | None) -> None:
        """`load` makes a context of `pair` and `ca`. Raises the `ConfigError` that it raises."""
        self._load = load
        self._pair = pair
        shown = () if pair is None else (pair.certificate[1], pair.key[1])
        self._files = [path for path in (*shown, ca) if path is not None]
        self._stamps = [*map(_stamp, self._files)]
        self._looked = time.monotonic()
        self._context = self._loaded()

    def current(self) -> ssl.SSLContext:
        """Returns the context for a connection that is made now. Looks at the files at most once in `LOOK_EVERY` seconds."""
        now = time.monotonic()
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            before, self._stamps = self._stamps, [*map(_stamp, self._files)]
            if before != self._stamps:
                try:
                    self._context = self._loaded()
                except ConfigError as error:
                    _log.error("tls files changed but cannot be used, the former ones stay: %s", error)
                else:
                    _log.info("tls files reloaded: %s", ", ".join(map(str, self._files)))
        return self._context

    def _loaded(self) -> ssl.SSLContext:
        context = self._load()
        if self._pair is not None and (expired := self._pair.expired()) is not None:
            _log.warning("the other side will refuse the certificate: %s", expired)
        return context


def _stamp(path: Path) -> tuple[int, int, int]:
    # Kubernetes replaces a symbolic link; stat follows it, so inode and time change.
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_mtime_ns, status.st_ino, status.st_size)
