"""TLS towards clients, with certificates that may be renewed while the service runs."""

from __future__ import annotations

import ssl
from typing import Any

from headrace_common.operations.certificates import ReloadingContext, expiry, present, trust
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import TlsSettings


def client_tls(settings: TlsSettings, metrics: ReceiverMetrics) -> ReloadingContext:
    """Returns the context of the connections that a listener accepts. Reads the files. Raises `ConfigError`."""
    assert settings.cert is not None
    assert settings.key is not None
    certificate, key = settings.cert, settings.key

    def load() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2 if settings.minimum == "1.2" else ssl.TLSVersion.TLSv1_3
        # A write-only client never reads TLS 1.3's session tickets. If it closes with them unread, its kernel sends a reset, ours
        # discards the bytes not read yet, and data is lost that the client believes delivered.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_RENEGOTIATION  # OpenSSL 1.1.1 lets clients ask for it, again and again
        present(context, ("TLS__CERT", "TLS__KEY"), certificate, key)
        if settings.client_ca is not None:
            trust(context, "TLS__CLIENT_CA", settings.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        metrics.certificate_expiry.set(expiry(certificate))
        return context

    return ReloadingContext(load, certificate, key, settings.client_ca)


def identity(certificate: dict[str, Any] | None) -> str | None:
    """Returns the name in a client's certificate: common name, else first DNS name, else the whole subject. None without one."""
    if not certificate:
        return None
    subject = [pair for group in certificate.get("subject", ()) for pair in group]
    names = (*subject, *certificate.get("subjectAltName", ()))
    named = next((str(value) for kind, value in names if kind in ("commonName", "DNS") and value), None)
    return named or ",".join(f"{key}={value}" for key, value in subject) or None
