"""What becomes of a record that goes to quarantine: landed, left out and counted, or reason enough to stop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from headrace_common.event import Reason, RecordFault
from pyspark.sql import Column
from pyspark.sql import functions as sf

DEFAULT: Final = "default"
"""Key of LAKE__QUARANTINE: the policy of every reason that is not named."""

OTHER: Final = "other"
"""Label of metrics for a reason that this version does not know."""

REASONS: Final = tuple(str(reason) for reason in (*Reason, *RecordFault))
"""Every reason there is: the receivers', and the faults that this job finds."""


class Policy(StrEnum):
    """What is done with a record that could not be understood."""

    LOG = "log"  # land it in the quarantine table
    SKIP = "skip"  # leave it out, counted in `batches.skipped`
    SUSPEND = "suspend"  # stop before its batch is landed


@dataclass(frozen=True)
class Policies:
    """The policy of each reason."""

    named: Mapping[str, Policy]
    default: Policy = Policy.LOG

    @classmethod
    def of(cls, setting: Mapping[str, Policy]) -> Policies:
        """The policies that LAKE__QUARANTINE says."""
        named = {reason: policy for reason, policy in setting.items() if reason != DEFAULT}
        return cls(named, setting.get(DEFAULT, Policy.LOG))

    def have(self, policy: Policy, reasons: Iterable[str] = REASONS) -> bool:
        """Whether one of `reasons` has `policy`."""
        return any(self.named.get(reason, self.default) is policy for reason in reasons)

    def where(self, policy: Policy, column: str = "reason") -> Column:
        """Condition: the reason in `column`, of whatever text, has `policy`."""
        reason = sf.col(column)
        its = [name for name, named in self.named.items() if named is policy]
        others = [name for name in self.named if name not in its]
        return ~reason.isin(others) if self.default is policy else reason.isin(its)


def unknown(setting: Mapping[str, object]) -> list[str]:
    """Keys of LAKE__QUARANTINE that are no reason."""
    return sorted(setting.keys() - {*REASONS, DEFAULT})
