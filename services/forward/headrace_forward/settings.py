"""Settings of the Forward receiver."""

from __future__ import annotations

from headrace_common.settings import KIB, Section, ServiceSettings
from pydantic import Field

PORT = 24224
"""The protocol's port."""


class ForwardSection(Section):
    """What only Forward has."""

    tag_bytes: int = Field(KIB, ge=1, le=64 * KIB, description="Longest tag; longer: the message goes to quarantine.")
    chunk_bytes: int = Field(
        KIB, ge=1, le=64 * KIB, description="Longest `chunk` option; a longer one closes the connection."
    )
    option_bytes: int = Field(
        16 * KIB, ge=KIB, le=256 * KIB, description="Largest option map; larger: the message goes to quarantine."
    )


class ForwardSettings(ServiceSettings):
    """Everything that configures ``python -m headrace_forward``."""

    forward: ForwardSection = ForwardSection()
