"""The policy for a record for quarantine: land it, skip and count it, or stop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from headrace_common.record.contract import Reason, RecordFault
from pyspark.sql import Column
from pyspark.sql import functions as sf

DEFAULT: Final = "default"
"""Key of LAKE__QUARANTINE: the policy of all other reasons."""

OTHER: Final = "other"
"""Metrics label of a reason that this version does not know."""

REASONS: Final = tuple(str(reason) for reason in (*Reason, *RecordFault))
"""All reasons: those of the receivers, and the faults that this job finds."""


class Policy(StrEnum):
    """The policy for a record that the job could not understand."""

    LOG = "log"  # land it in the quarantine table
    SKIP = "skip"  # leave it out and count it in `batches.skipped`
    SUSPEND = "suspend"  # stop before landing its batch


@dataclass(frozen=True)
class Policies:
    """The policy of each reason."""

    named: Mapping[str, Policy]
    default: Policy = Policy.LOG

    @classmethod
    def of(cls, setting: Mapping[str, Policy]) -> Policies:
        """Returns the policies of LAKE__QUARANTINE."""
        named = {reason: policy for reason, policy in setting.items() if reason != DEFAULT}
        return cls(named, setting.get(DEFAULT, Policy.LOG))

    def have(self, policy: Policy, reasons: Iterable[str] = (*REASONS, OTHER)) -> bool:
        """Returns whether one of `reasons` has `policy`."""
        return any(self.named.get(reason, self.default) is policy for reason in reasons)

    def where(self, policy: Policy) -> Column:
        """Returns a condition: the column `reason` has `policy`. It may hold any text."""
        reason = sf.col("reason")
        its = [name for name, named in self.named.items() if named is policy]
        others = [name for name in self.named if name not in its]
        return ~reason.isin(others) if self.default is policy else reason.isin(its)


def unknown(setting: Mapping[str, object]) -> list[str]:
    """Returns the keys of LAKE__QUARANTINE that are not reasons."""
    return sorted(setting.keys() - {*REASONS, DEFAULT})
