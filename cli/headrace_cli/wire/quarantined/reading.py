"""Reads items once more, with this version and the settings now given."""

from __future__ import annotations

import struct
from pathlib import Path

from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import Settings, load
from headrace_common.protocol import installed
from headrace_common.record.contract import Reason
from headrace_common.session.again import ImpossibleError, Rejected, Replayed

from headrace_cli.operating.check.parts import settings_class
from headrace_cli.wire.quarantined.items import Item


class Reader:
    """Reads items with the settings of the environment and of the YAML file `config`."""

    def __init__(self, config: Path | None = None) -> None:
        self._config = config
        self._settings: dict[str, Settings] = {}

    def read(self, item: Item) -> Replayed:
        """What the receiver makes of an item today. Raises `ConfigError` for wrong settings, and nothing else."""
        problem = item.problem()
        if problem:
            return Replayed(impossible=problem)
        if item.reason not in list(Reason):
            return Replayed(impossible="the record breaks the contract on its topic, no client sent it so")
        read = next((each.again for each in installed() if each.name == item.protocol), None)
        if read is None:
            return Replayed(impossible=f"nobody reads {item.protocol}")
        about = item.attributes if isinstance(item.attributes, dict) else {}
        rejected = Rejected(
            item.name, item.reason, item.protocol, item.stream, item.source, received_ms(item), item.sha256, about,
            item.content(),
        )  # fmt: skip
        try:
            return read()(rejected, self._settings_of(item.protocol))
        except ProtocolError as error:
            return Replayed(impossible=f"the stream breaks: {error}" + (f" ({error.limit})" if error.limit else ""))
        except (ImpossibleError, ValueError, KeyError, TypeError, struct.error) as error:
            return Replayed(impossible=str(error) or type(error).__name__)

    def _settings_of(self, protocol: str) -> Settings:
        if protocol not in self._settings:
            self._settings[protocol] = load(settings_class(protocol), self._config)
        return self._settings[protocol]


def received_ms(item: Item) -> int:
    """When it was received, Unix time in milliseconds."""
    return int(item.received.timestamp() * 1000)
