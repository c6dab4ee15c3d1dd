"""TLS towards the brokers, with a client's certificate that may be renewed while the process runs."""

from __future__ import annotations

import ssl
from functools import lru_cache
from typing import Any

from typing_extensions import override

from headrace_common.operations.certificates import ReloadingContext, kafka_key_pair, trust
from headrace_common.operations.settings import KafkaSettings


@lru_cache
def broker_tls(settings: KafkaSettings) -> ssl.SSLContext:
    """Returns the context of all connections to brokers with these settings. Reads files. Raises `ConfigError`."""
    pair = kafka_key_pair(settings)

    def load() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trust(context, "KAFKA__CA", settings.ca)
        if pair is not None:
            pair.load_into(context)
        return context

    context = _Context(ssl.PROTOCOL_TLS_CLIENT)
    context.files = ReloadingContext(load, pair, settings.ca)
    return context


class _Context(ssl.SSLContext):
    """Makes each connection by the files as they are then: a producer's life is longer than a certificate's."""

    files: ReloadingContext

    @override
    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """Begins a connection. asyncio and uvloop call it for each one, before the handshake."""
        return self.files.current().wrap_bio(*arguments, **options)
