"""TLS towards the brokers, with a client's certificate that may be renewed while the process runs."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

from typing_extensions import override

from headrace_common.operations.certificates import KeyPair, WatchedFiles, kafka_key_pair
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.settings import KafkaSettings

_log = logging.getLogger("headrace.kafka")
_said: set[str] = set()


def broker_tls(settings: KafkaSettings) -> ssl.SSLContext:
    """Returns the context for a client's connections to brokers. Reads files. Raises `ConfigError`."""
    context = _Context(ssl.PROTOCOL_TLS_CLIENT)
    context.begin(settings)
    return context


def trust(context: ssl.SSLContext, setting: str, ca: Path | None) -> None:
    """Makes `context` trust the CA in a file, the system's without one. Raises `ConfigError`, which names `setting`."""
    try:
        if ca is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(ca)
    except OSError as error:
        raise ConfigError(f"{setting} {ca}: {error}") from error


class _Context(ssl.SSLContext):
    """Shows the certificate that is in the files when a connection is made: a producer's life is longer than a certificate's.

    If the new files are unusable (half written, or key and certificate do not match), the former ones stay.
    """

    def begin(self, settings: KafkaSettings) -> None:
        """Reads the files for the first time. Raises `ConfigError`."""
        self._settings = settings
        self._pair = kafka_key_pair(settings)
        files = (settings.ca, settings.certificate, settings.key)
        self._files = WatchedFiles(path for path in files if path is not None)
        self._load()

    @override
    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """Reads changed files. asyncio and uvloop call it for each connection, before the handshake."""
        if self._files.changed():
            try:
                self._load()
            except ConfigError as error:
                _log.error("kafka's tls files changed but cannot be used, the former ones stay: %s", error)
        return super().wrap_bio(*arguments, **options)

    def _load(self) -> None:
        trust(self, "KAFKA__CA", self._settings.ca)
        if self._pair is not None:
            # Into another context first: a certificate without its key would stay in this one.
            self._pair.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
            self._pair.load_into(self)
            _warn(self._pair)


def _warn(pair: KeyPair) -> None:
    """Warns once of each certificate that has expired, however many clients show it."""
    said = pair.expired()
    if said is not None and said not in _said:
        _said.add(said)
        _log.warning("%s: brokers will refuse it", said)
