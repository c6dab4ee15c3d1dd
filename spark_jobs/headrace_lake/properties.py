"""Properties of ours that a table carries, for whoever reads it. Without PySpark: the command line reads them too."""

from __future__ import annotations

from typing import Final

RETAINED_FROM: Final = "headrace.retainedFrom"
"""The first day (UTC, ISO 8601) whose rows are kept; earlier ones may be gone. Set before they go."""

VACUUMED_AT: Final = "headrace.vacuumedAt"
"""When the table was last vacuumed, or made; Unix seconds."""
