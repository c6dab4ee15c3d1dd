"""The parts of the Helm chart's values: the settings and secrets of each part, which come from the settings classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace_common.operations.settings import ServiceSettings, TopicsProcessSettings
from headrace_courier.settings import CourierSettings
from headrace_forward.settings import ForwardSettings
from headrace_lake.configuration.settings import LakeProcessSettings
from headrace_logjam.settings import LogjamSettings
from headrace_lumberjack.settings import LumberjackSettings
from headrace_segment.settings import SegmentSettings
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_settings import BaseSettings

SETTINGS: Final = "x-settings"
"""Marks, in a schema, where the settings of a part belong; replaced by `chart_pages.schema`."""

SECRETS: Final = "x-secrets"
"""The same for a part's secrets."""

FORM: Final = "x-form"
"""Marks where one of `chart_pods.FORMS` belongs."""

OWNED: Final = frozenset(
    {
        "listen.host",
        "listen.port",
        "listen.reuse_port",
        "ops.host",
        "ops.port",
        "tls.cert",
        "tls.key",
        "tls.client_ca",
    }
    | {"lake.jars", "lake.master", "logjam.consumer"}
)
"""Settings that the chart itself decides."""

FROM_SECRETS: Final = ("sasl_username", "ca", "certificate", "key", "oauth_client_id", "oauth_ca")
"""Settings of Kafka's clients that the chart takes from Secrets."""

NOT_FOR_LOGJAM: Final = frozenset({"tls.minimum", "listen.trusted_proxies"})
"""Settings that ZeroMQ lacks: the receiver would refuse to start."""


@dataclass(frozen=True)
class Part:
    """The settings of one `settings` object of the chart: which class, which of its sections."""

    settings: type[BaseSettings]
    sections: frozenset[str]
    without: frozenset[str] = OWNED


def _receiver(cls: type[BaseSettings], without: frozenset[str] = OWNED) -> Part:
    return Part(cls, frozenset(cls.model_fields) - {"kafka", "ops"}, without)


PARTS: Final[Mapping[str, Part]] = {
    "kafka": Part(ServiceSettings, frozenset({"kafka"}), OWNED | {f"kafka.{name}" for name in FROM_SECRETS}),
    "receiver": _receiver(ServiceSettings),
    "forward": _receiver(ForwardSettings),
    "lumberjack": _receiver(LumberjackSettings),
    "courier": _receiver(CourierSettings),
    "logjam": _receiver(LogjamSettings, OWNED | NOT_FOR_LOGJAM),
    "segment": _receiver(SegmentSettings),
    "topics": Part(TopicsProcessSettings, frozenset({"topics", "log"})),
    "lake": Part(LakeProcessSettings, frozenset({"lake", "log"})),
}

Kubernetes = dict[str, Any]
"""An object that Kubernetes defines and checks."""


class Value(BaseModel):
    """A group of values: camelCase outside, no unknown name."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


def settings_of(
    part: str, text: str = "Settings of this part: sections, and names in them, as in docs/settings.md."
) -> Any:
    return Field(default={}, description=text, json_schema_extra={SETTINGS: part})


def secrets_of(part: str) -> Any:
    return Field(
        default={},
        description="Secret settings, as `section: {name: {secret: SECRET, key: KEY}}`: read from a file that the Secret fills.",
        json_schema_extra={SECRETS: part},
    )


def form(name: str) -> dict[str, Any]:
    """The mark of a form."""
    return {FORM: name}


def kubernetes(text: str) -> Any:
    return Field(default={}, description=text)
