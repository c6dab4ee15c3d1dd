"""Settings of the OTLP receiver."""

from __future__ import annotations

from typing import ClassVar

from headrace_common.operations.settings import LimitSettings, Section, ServiceSettings
from headrace_common.operations.variables import Seconds
from pydantic import Field

PORT = 4318
"""That of OTLP over HTTP, which every exporter has by default."""


class OtlpLimits(LimitSettings):
    """The limits, with the protocol's own depth."""

    depth: ClassVar[int] = 32  # protobuf reads 100 messages in each other, and a map in a map takes three


class OtlpSection(Section):
    """Settings of OTLP alone."""

    answer_time: Seconds = Field(
        8,
        ge=3,
        description="How long a request may wait for Kafka before it is answered with 503: less than the timeout of its clients,"
        " 10 s by default.",
    )


class OtlpSettings(ServiceSettings):
    """All settings of ``python -m headrace_otlp``."""

    limits: OtlpLimits = OtlpLimits()
    otlp: OtlpSection = OtlpSection()
