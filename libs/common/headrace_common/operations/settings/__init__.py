"""Settings, declared once: environment, YAML file, documentation and the Helm schema all derive from these classes.

A setting that several parts have is one line in `kafka` or `serving`; `process` says which process has which section.
A setting comes from ``HEADRACE_<SECTION>__<NAME>`` in the environment, or from a YAML file (``--config``) whose sections are
mappings; the environment wins. A secret may also come from a file that ``HEADRACE_<SECTION>__<NAME>_FILE`` names. Durations
are in seconds, sizes in bytes; as text both may have a unit (`variables.read_seconds`, `read_bytes`). A service ignores
variables of sections that it lacks; an unknown name inside one of its sections is a `ConfigError`.
"""

from __future__ import annotations

from headrace_common.operations.settings.kafka import SMALLEST_MESSAGE_BYTES, KafkaSettings, TopicSettings
from headrace_common.operations.settings.process import (
    ServiceSettings,
    Settings,
    TopicsProcessSettings,
    describe,
    environment,
    load,
    own_environment,
    parse_arguments,
)
from headrace_common.operations.settings.section import KIB, MIB, Section
from headrace_common.operations.settings.serving import (
    LimitSettings,
    ListenSettings,
    LogSettings,
    OpsSettings,
    TlsSettings,
)

__all__ = [
    "KIB",
    "MIB",
    "SMALLEST_MESSAGE_BYTES",
    "KafkaSettings",
    "LimitSettings",
    "ListenSettings",
    "LogSettings",
    "OpsSettings",
    "Section",
    "ServiceSettings",
    "Settings",
    "TlsSettings",
    "TopicSettings",
    "TopicsProcessSettings",
    "describe",
    "environment",
    "load",
    "own_environment",
    "parse_arguments",
]
