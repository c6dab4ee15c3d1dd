"""What a check found: a verdict, the reason, and what to look at next."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

from headrace_cli.verbs import console


class Verdict(StrEnum):
    """From harmless to harmful."""

    FINE = "fine"
    UNKNOWN = "unknown"  # it could not be looked at; that alone is no fault
    DOUBT = "doubt"
    WRONG = "wrong"


_MARKS: Final = {Verdict.FINE: "good", Verdict.UNKNOWN: "note", Verdict.DOUBT: "bad", Verdict.WRONG: "bad"}


@dataclass(frozen=True)
class Finding:
    """One check's result. `next`: what to do, or to look at; empty if nothing."""

    check: str
    verdict: Verdict
    reason: str
    next: str = ""

    @property
    def bad(self) -> bool:
        """Whether it counts."""
        return self.verdict in (Verdict.DOUBT, Verdict.WRONG)


def show(findings: Sequence[Finding], verdict: str, *, fine: bool, as_json: bool) -> None:
    """Print all findings and the verdict."""
    if as_json:
        document = {"verdict": verdict, "fine": fine, "checks": [asdict(found) for found in findings]}
        sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=1) + "\n")
        return
    for found in findings:
        console.line(found.check, _MARKS[found.verdict], found.reason)
        if found.next:
            console.OUT.print(f"   → {found.next}", markup=False)
    console.OUT.print(verdict, style="bold green" if fine else "bold red", markup=False)
