"""The parts of Headrace whose settings can be checked, and where the classes of these settings are."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final

from headrace_common.operations.settings import Settings, own_environment
from headrace_common.operations.variables import PREFIX
from headrace_common.protocol import installed

_RECEIVERS: Final = {protocol.name: protocol.settings for protocol in installed()}
_OTHERS: Final[Mapping[str, tuple[str, str]]] = {
    "lake": ("headrace_lake.configuration.settings", "LakeProcessSettings"),
    "topics": ("headrace_common.operations.settings", "TopicsProcessSettings"),
}
NAMES: Final = (*_RECEIVERS, *_OTHERS)


def settings_class(part: str) -> type[Settings]:
    """The class of a part's settings; imports it."""
    if part in _RECEIVERS:
        return _RECEIVERS[part]
    module, name = _OTHERS[part]
    found = getattr(import_module(module), name)
    assert isinstance(found, type)
    assert issubclass(found, Settings)
    return found


@contextlib.contextmanager
def as_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Within it, this process's environment has these variables of Headrace, and no others."""
    kept = own_environment()
    try:
        for name in kept:
            del os.environ[name]
        os.environ.update({name: value for name, value in variables.items() if name.upper().startswith(PREFIX)})
        yield
    finally:
        for name in own_environment():
            del os.environ[name]
        os.environ.update(kept)
