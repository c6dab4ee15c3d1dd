"""Compares the lake with what was sent, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from headrace_reader.proof import exactly_once
from headrace_reader.tables import connect
from pyarrow import csv

_CHECKS: Final = {
    "rows of events that nobody sent there": """
        select * from events e anti join sent s on s."partition" = e."partition" and s."offset" = e."offset"
            and s.event_id = e.event_id and s.digest = md5(e.body) and s.kind <> 'bad'""",
    "records that landed twice": 'select "partition", "offset" from events group by all having count(*) > 1',
    "events that landed too often or not at all": """
        select event_id from (select event_id, count(*) as n from sent where kind not in ('bad', {collapsed}) group by all) w
        full join (select event_id, count(*) as n from events group by all) f using (event_id)
        where w.n is distinct from f.n""",
    "bad records that are not in quarantine once": """
        select "partition", "offset" from (select * from sent where kind = 'bad') s
        full join (select "partition", "offset", count(*) as n from quarantine where reason = 'missing_header' group by all) q
            using ("partition", "offset")
        where s.kind is null or q.n is distinct from 1""",
}
"""Queries that must return nothing. `collapsed`: kinds that must not land."""


def compare(lake: Path, sent: Path, *, collapse: bool) -> list[str]:
    """The errors, one line each. `collapse`: resends must be left out.

    Includes the named proof, which looks only at the lake.
    """
    wrong = [f"{row['check']}: {row['detail']}" for row in exactly_once(lake) if not row["ok"]]
    columns = csv.ReadOptions(column_names=["partition", "offset", "event_id", "digest", "kind"])
    with connect(lake) as connection:
        connection.register("sent", csv.read_csv(sent, columns))
        kinds = "'resend'" if collapse else "''"
        for what, sql in _CHECKS.items():
            row = connection.execute(f"select count(*) from ({sql.replace('{collapsed}', kinds)})").fetchone()
            if row is not None and row[0]:
                wrong.append(f"{row[0]} {what}")
        row = connection.execute(
            "select (select count(*) from duplicates), (select count(*) from sent where kind = 'resend')"
        ).fetchone()
        if row is not None and collapse and row[0] != row[1]:
            wrong.append(f"the lake has {row[0]} duplicates, {row[1]} were sent")
    return wrong
