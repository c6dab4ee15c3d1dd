"""What was a setting once and is a constant of its section now, with another value for a test.

A test names it among the settings of its section. `parted` takes it out; `constants` sets it in this process. A process of its
own is run with it by ``python -m tests.constants JSON MODULE``: the JSON is what `told` returns.
"""

from __future__ import annotations

import contextlib
import json
import runpy
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any
from unittest import mock

from headrace_common.operations.settings import Section, Settings

Sections = Mapping[str, Mapping[str, object]]
Constants = list[tuple[type[Section], str, object]]
"""Section, name, value."""


def parted(settings: type[Settings], sections: Sections) -> tuple[dict[str, dict[str, Any]], Constants]:
    """The sections without what is a constant now, and the constants."""
    rest: dict[str, dict[str, Any]] = {}
    found: Constants = []
    for name, values in sections.items():
        section: Any = settings.model_fields[name].annotation if name in settings.model_fields else Section
        for each, value in values.items():
            if each in section.__class_vars__:
                found.append((section, each, value))
            else:
                rest.setdefault(name, {})[each] = value
    return rest, found


@contextlib.contextmanager
def constants(chosen: Constants) -> Iterator[None]:
    """Sets them meanwhile."""
    with contextlib.ExitStack() as stack:
        for section, name, value in chosen:
            stack.enter_context(mock.patch.object(section, name, value))
        yield


def told(chosen: Constants) -> str:
    """Them, for another process."""
    return json.dumps([(section.__module__, section.__name__, name, value) for section, name, value in chosen])


if __name__ == "__main__":
    _, given, program, *rest = sys.argv
    for place, kind, name, value in json.loads(given):
        setattr(getattr(import_module(place), kind), name, value)
    sys.argv = [program, *rest]
    runpy.run_module(program, run_name="__main__", alter_sys=True)
