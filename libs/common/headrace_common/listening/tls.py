"""TLS towards clients, with certificates that may be renewed while the service runs."""

from __future__ import annotations

import ssl
from typing import Any

from headrace_common.operations.certificates import KeyPair, WatchedFiles
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.log import Log
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import TlsSettings


class TlsContext:
    """The context for new connections, reloaded when its files change. Existing connections keep theirs.

    If the new files are unusable (half written, or key and certificate do not match), the former context stays. Each change
    logs one line.
    """

    def __init__(self, settings: TlsSettings, metrics: ReceiverMetrics, log: Log) -> None:
        self._settings = settings
        self._metrics = metrics
        self._log = log
        self._files = WatchedFiles(
            path for path in (settings.cert, settings.key, settings.client_ca) if path is not None
        )
        self._context = self._load()

    def current(self) -> ssl.SSLContext:
        """Returns the context for a connection that is accepted now. Reloads the files if they have changed."""
        if self._files.changed():
            self._reload()
        return self._context

    def _reload(self) -> None:
        try:
            self._context = self._load()
        except ConfigError as error:
            self._log.error("tls files changed but cannot be used, the former ones stay", problem=str(error))
        else:
            self._log.info("tls files reloaded", cert=str(self._settings.cert))

    def _load(self) -> ssl.SSLContext:
        settings = self._settings
        assert settings.cert is not None
        assert settings.key is not None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2 if settings.minimum == "1.2" else ssl.TLSVersion.TLSv1_3
        # A write-only client never reads TLS 1.3's session tickets. If it closes with them unread, its kernel sends a reset,
        # ours discards the bytes not read yet, and data is lost that the client believes delivered.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_RENEGOTIATION  # OpenSSL 1.1.1 lets clients ask for it, again and again
        pair = KeyPair("TLS", ("CERT", settings.cert), ("KEY", settings.key))
        pair.load_into(context)
        if (problem := pair.expired()) is not None:
            self._log.warning("clients will refuse the certificate", problem=problem)
        if settings.client_ca is not None:
            try:
                context.load_verify_locations(settings.client_ca)
            except OSError as error:
                raise ConfigError(f"TLS__CLIENT_CA {settings.client_ca}: {error}") from error
            context.verify_mode = ssl.CERT_REQUIRED
        self._metrics.certificate_expiry.set(pair.ends())
        return context


def identity(certificate: dict[str, Any] | None) -> str | None:
    """Returns the name in a client's certificate: common name, else first DNS name, else the whole subject. None without one."""
    if not certificate:
        return None
    subject = [pair for group in certificate.get("subject", ()) for pair in group]
    for key, value in subject:
        if key == "commonName" and value:
            return str(value)
    for kind, value in certificate.get("subjectAltName", ()):
        if kind == "DNS" and value:
            return str(value)
    return ",".join(f"{key}={value}" for key, value in subject) or None
