"""OTLP as Headrace knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace_common.operations.settings import ServiceSettings
from headrace_common.protocol import Port, Protocol

if TYPE_CHECKING:
    from headrace_common.receiver import Parts, Runtime

PORT: Final = 4318
"""That of OTLP over HTTP, which every exporter has by default."""


def build(runtime: Runtime[ServiceSettings]) -> Parts:
    """Makes stream listeners only: OTLP over gRPC is not served."""
    from headrace_common.receiver import Parts, stream_listeners

    from headrace_otlp.session import OtlpSession

    limits, problems = runtime.settings.limits, runtime.receiver.publisher.ready_problems
    return Parts(stream_listeners(runtime, PORT, lambda peer: OtlpSession(peer, limits, problems)))


PROTOCOL: Final = Protocol(
    name="otlp",
    title="OpenTelemetry (OTLP)",
    listeners=(Port("tcp", PORT),),
    ops_port=8092,
    settings=ServiceSettings,
    build=build,
    client="headrace_otlp.client:OtlpClient",
    session="headrace_otlp.session:OtlpSession",
    again="headrace_otlp.again:read",
    hint="OTEL_EXPORTER_OTLP_LOGS_ENDPOINT=http://{listen}/v1/logs OTEL_EXPORTER_OTLP_LOGS_PROTOCOL=http/protobuf",
)
