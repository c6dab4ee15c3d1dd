"""The parts of Headrace whose settings can be checked, and where the classes of these settings are."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final

from headrace_common.operations.settings import Settings, own_environment
from headrace_common.operations.variables import PREFIX

_CLASSES: Final[Mapping[str, tuple[str, str]]] = {
    "forward": ("headrace_forward.settings", "ForwardSettings"),
    "courier": ("headrace_courier.settings", "CourierSettings"),
    "lumberjack": ("headrace_lumberjack.settings", "LumberjackSettings"),
    "logjam": ("headrace_logjam.settings", "LogjamSettings"),
    "segment": ("headrace_segment.settings", "SegmentSettings"),
    "lake": ("headrace_lake.configuration.settings", "LakeProcessSettings"),
    "topics": ("headrace_common.operations.settings", "TopicsProcessSettings"),
}
NAMES: Final = tuple(_CLASSES)


def settings_class(part: str) -> type[Settings]:
    """The class of a part's settings; imports it."""
    module, name = _CLASSES[part]
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
