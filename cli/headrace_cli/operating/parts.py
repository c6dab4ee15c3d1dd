"""The settings of each part."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Final

from headrace_common.operations.settings import Settings
from headrace_common.protocol import installed

_RECEIVERS: Final = {protocol.name: protocol.settings for protocol in installed()}
_OTHERS: Final[Mapping[str, str]] = {
    "lake": "headrace_lake.configuration.settings:LakeProcessSettings",
    "topics": "headrace_common.operations.settings:TopicsProcessSettings",
}
NAMES: Final = (*_RECEIVERS, *_OTHERS)


def settings_class(part: str) -> type[Settings]:
    """Return the class of a part's settings; imports it."""
    if part in _RECEIVERS:
        return _RECEIVERS[part]
    found: type[Settings] = resolve_name(_OTHERS[part])
    return found
