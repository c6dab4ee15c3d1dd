"""Reads the tables. It blocks: call it in a thread."""

from __future__ import annotations

from typing import Final

import duckdb
from headrace_cli.ground import CommandError
from headrace_reader.address import LakeAddress, without_secrets
from headrace_reader.tables import connect, first_line

from headrace_live.looks import GapTotal, TablesLook

MEMORY: Final = "512MB"

_ROWS: Final = """
    select greatest(0, coalesce(sum(records), 0) - (select count(*) from quarantine) - (select count(*) from duplicates)),
        (select count(*) from quarantine), epoch(max(landed_at) filter ("from" < "to"))
    from batches"""
_GAPS: Final = """
    select reason, count(*), sum("to" - "from" - "rows")
    from gaps group by reason order by reason"""


def look(lake: LakeAddress) -> TablesLook:
    """Ask the tables that are small, all but events. What is wrong is in the look."""
    try:
        with connect(lake, threads=1, memory_limit=MEMORY) as connection:
            events, quarantined, landed = connection.execute(_ROWS).fetchone() or (0, 0, None)
            gaps = [
                GapTotal(reason, int(rows), None if lost is None else int(lost))
                for reason, rows, lost in connection.execute(_GAPS).fetchall()
            ]
            return TablesLook("", {"events": int(events), "quarantine": int(quarantined)}, landed, gaps)
    except CommandError as error:
        return TablesLook(str(error))
    except duckdb.Error as error:
        return TablesLook(f"The tables in {lake} cannot be read: {without_secrets(first_line(str(error)))}")
