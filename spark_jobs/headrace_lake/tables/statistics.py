"""Delta's statistics of a Parquet file, from those in the file: readers and this job skip files by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq


def statistics(file: Path, columns: Collection[str]) -> dict[str, Any]:
    """Returns the rows of `file`, and nulls and ranges of `columns`, as Delta writes them.

    A column has no range if the file does not tell it, or if it has a year that four digits cannot hold.
    """
    footer = pq.read_metadata(file)
    nulls: Counter[str] = Counter()
    ranges: dict[str, list[Any]] = {}
    unknown: set[str] = set()
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for place in range(group.num_columns):
            name, found = group.column(place).path_in_schema, group.column(place).statistics
            if name not in columns or found is None:
                continue
            nulls[name] += found.null_count
            if found.num_values == 0:
                continue
            try:
                ends = [found.min, found.max] if found.has_min_max else []
            except (ValueError, OverflowError):
                ends = []
            if not ends:
                unknown.add(name)
            ranges.setdefault(name, []).extend(ends)
    known = {name: (min(ends), max(ends)) for name, ends in ranges.items() if name not in unknown}
    return {
        "numRecords": footer.num_rows,
        "minValues": {name: _said(low) for name, (low, _) in known.items()},
        "maxValues": {name: _said(high) for name, (_, high) in known.items()},
        "nullCount": dict(nulls),
    }


def _said(value: Any) -> Any:
    if isinstance(value, datetime):
        return f"{value.year:04}-{value:%m-%dT%H:%M:%S}.{value.microsecond:06}Z"
    return value.isoformat() if isinstance(value, date) else value
