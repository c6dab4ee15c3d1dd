"""Certificates and keys in PEM files: loaded, and again when they change."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from typing_extensions import override

from headrace_common.operations.errors import ConfigError

_log = logging.getLogger("headrace.tls")


def present(context: ssl.SSLContext, settings: tuple[str, str], certificate: Path, key: Path) -> None:
    """Makes `context` present a certificate with its chain. Reads files. Raises `ConfigError` with their names."""
    try:
        context.load_cert_chain(certificate, key, password="")
    except OSError as error:
        unfit = "no certificate with its own key in PEM, unencrypted"
        why = unfit if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(f"{settings[0]} {certificate}, {settings[1]} {key}: {why}") from error


def validity(certificate: Path) -> tuple[float, float]:
    """Returns the Unix times between which the first certificate of a file is valid; zeros if it cannot be read now. Reads it."""
    try:  # the standard library offers no public function
        decoded = ssl._ssl._test_decode_cert(str(certificate))  # type: ignore[attr-defined]
    except OSError:  # `load_into` says it
        return 0.0, 0.0
    return ssl.cert_time_to_seconds(decoded["notBefore"]), ssl.cert_time_to_seconds(decoded["notAfter"])


def expiry(certificate: Path) -> float:
    """Returns the Unix time when the first certificate of a file expires, as `validity` does."""
    return validity(certificate)[1]


def trust(context: ssl.SSLContext, setting: str, ca: Path | None) -> None:
    """Makes `context` trust the CA in a file, the system's without one. Raises `ConfigError`, which names `setting`."""
    try:
        if ca is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(ca)
    except OSError as error:
        raise ConfigError(f"{setting} {ca}: {error}") from error


class ReloadingContext(ssl.SSLContext):
    """Makes each connection by its files as they are then: a process lives longer than a certificate. Existing connections keep
    theirs.

    If the new files are unusable (half written, or key and certificate do not match), the former ones stay.
    """

    def __new__(cls, load: Callable[[], ssl.SSLContext], *files: Path | None) -> Self:
        """`load` makes a context of `files`. Raises the `ConfigError` that it raises."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)  # its own settings are never asked

    def __init__(self, load: Callable[[], ssl.SSLContext], *files: Path | None) -> None:
        self._load = load
        self._files = [path for path in files if path is not None]
        self._stamps = [*map(_stamp, self._files)]
        self._current = load()

    @override
    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """Begins a connection. asyncio, uvloop and our listeners call it for each one, before the handshake."""
        return self.current().wrap_bio(*arguments, **options)

    def current(self) -> ssl.SSLContext:
        """Returns the context for a connection that is made now. Looks at the files, which takes microseconds."""
        before, self._stamps = self._stamps, [*map(_stamp, self._files)]
        if before != self._stamps:
            try:
                self._current = self._load()
            except ConfigError as error:
                _log.error("tls files changed but cannot be used, the former ones stay: %s", error)
            else:
                _log.info("tls files reloaded: %s", ", ".join(map(str, self._files)))
        return self._current


def _stamp(path: Path) -> tuple[int, int, int]:
    # Kubernetes replaces a symbolic link; stat follows it, so inode and time change.
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_mtime_ns, status.st_ino, status.st_size)
