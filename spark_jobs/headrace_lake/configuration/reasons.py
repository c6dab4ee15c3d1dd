"""The reasons for which a record goes to quarantine, as labels of metrics."""

from __future__ import annotations

from typing import Final

from headrace_common.record.contract import Reason, RecordFault

OTHER: Final = "other"
"""Label of a reason that this version does not know."""

REASONS: Final = tuple(str(reason) for reason in (*Reason, *RecordFault))
"""All reasons: those of the receivers, and the faults that this job finds."""
