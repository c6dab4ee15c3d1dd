"""Settings, declared once: environment, documentation and the Helm schema all derive from these classes.

A setting that several parts have is one line in `kafka` or `serving`; `process` says which process has which section.
A setting comes from ``HEADRACE_<SECTION>__<NAME>`` in the environment. A secret may also come from a file that
``HEADRACE_<SECTION>__<NAME>_FILE`` names. Durations are in seconds, sizes in bytes; as text both may have a unit
(`variables.read_seconds`, `read_bytes`). A service ignores variables of sections that it lacks; an unknown name inside one of
its sections is a `ConfigError`.
"""

from __future__ import annotations

from headrace_common.operations.settings.kafka import SMALLEST_MESSAGE_BYTES as SMALLEST_MESSAGE_BYTES
from headrace_common.operations.settings.kafka import KafkaSettings as KafkaSettings
from headrace_common.operations.settings.kafka import TopicSettings as TopicSettings
from headrace_common.operations.settings.process import ServiceSettings as ServiceSettings
from headrace_common.operations.settings.process import Settings as Settings
from headrace_common.operations.settings.process import TopicsProcessSettings as TopicsProcessSettings
from headrace_common.operations.settings.process import environment as environment
from headrace_common.operations.settings.process import load as load
from headrace_common.operations.settings.process import own_environment as own_environment
from headrace_common.operations.settings.serving import LimitSettings as LimitSettings
from headrace_common.operations.settings.serving import ListenSettings as ListenSettings
from headrace_common.operations.settings.serving import LogSettings as LogSettings
from headrace_common.operations.settings.serving import OpsSettings as OpsSettings
from headrace_common.operations.settings.serving import TlsSettings as TlsSettings
from headrace_common.operations.variables import KIB as KIB
from headrace_common.operations.variables import MIB as MIB
from headrace_common.operations.variables import Section as Section
