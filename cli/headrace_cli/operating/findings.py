"""The parts that are checked, with their settings, and the findings."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import import_module
from typing import Final

from headrace_common.operations.settings import Settings, own_environment
from headrace_common.operations.variables import PREFIX
from headrace_common.protocol import installed

from headrace_cli import console

_RECEIVERS: Final = {protocol.name: protocol.settings for protocol in installed()}
_OTHERS: Final[Mapping[str, tuple[str, str]]] = {
    "lake": ("headrace_lake.configuration.settings", "LakeProcessSettings"),
    "topics": ("headrace_common.operations.settings", "TopicsProcessSettings"),
}
NAMES: Final = (*_RECEIVERS, *_OTHERS)


def settings_class(part: str) -> type[Settings]:
    """Return the class of a part's settings; imports it."""
    if part in _RECEIVERS:
        return _RECEIVERS[part]
    module, name = _OTHERS[part]
    found = getattr(import_module(module), name)
    assert isinstance(found, type)
    assert issubclass(found, Settings)
    return found


@contextlib.contextmanager
def as_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Give this process's environment, for a block, these variables of Headrace, and no others."""
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


class Severity(StrEnum):
    """From harmless to harmful."""

    FINE = "fine"
    UNKNOWN = "unknown"  # it could not be looked at; that alone is no fault
    DOUBT = "doubt"
    WRONG = "wrong"


_MARKS: Final = {Severity.FINE: "good", Severity.UNKNOWN: "note", Severity.DOUBT: "bad", Severity.WRONG: "bad"}


@dataclass(frozen=True)
class CheckResult:
    """One check's result. `next`: what to do, or to look at; empty if nothing."""

    check: str
    verdict: Severity
    reason: str
    next: str = ""

    @property
    def bad(self) -> bool:
        return self.verdict in (Severity.DOUBT, Severity.WRONG)


def as_document(findings: Sequence[CheckResult], verdict: str, *, fine: bool) -> str:
    """Return the findings and the verdict as JSON."""
    document = {"verdict": verdict, "fine": fine, "checks": [asdict(found) for found in findings]}
    return json.dumps(document, ensure_ascii=False, indent=1)


def show(found: CheckResult) -> None:
    """Print a finding."""
    console.line(found.check, _MARKS[found.verdict], found.reason)
    if found.next:
        console.OUT.print(f"   → {found.next}", markup=False)
