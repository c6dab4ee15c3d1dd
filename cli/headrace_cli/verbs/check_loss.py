"""``check-loss``: whether anything was lost: one verdict with reasons, for cron and CI."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from headrace_common.operations.errors import HeadraceError

from headrace_cli.ground import DEFAULT_STATE, EXIT_DOUBT, EXIT_FAILED, EXIT_NOTHING_RUNS, CommandError
from headrace_cli.options import KafkaOption, LakeOption, StateOption, examples, parse_moment

if TYPE_CHECKING:
    from headrace_common.operations.settings import KafkaSettings

    from headrace_cli.wire.connections import Tally

LANDING_SECONDS: Final = 300.0
"""Time limit of the landing job, from the last acknowledgement on. On a busy machine its first batch takes minutes."""
_LANDED: Final = """
    select count(distinct event_id) as events, count(distinct id) as rejects from (
        select event_id, null as id, coalesce(body, payload::varchar) as said, received_time from events
        union all select null, id, raw::varchar, received_time from quarantine)
    where received_time >= timestamptz '{began}' and contains(said, '{run}')"""

app = typer.Typer()


@app.command(
    "check-loss",
    epilog=examples(
        "./headrace check-loss --since 1d --json", "./headrace check-loss --lake /data/lake --kafka kafka-1:9092"
    ),
)
def check_loss(
    state: StateOption = DEFAULT_STATE,
    kafka: KafkaOption = None,
    lake: LakeOption = None,
    since: Annotated[
        str, typer.Option(metavar="TIME", help="What landed since an ISO time, or within this time: 1d.")
    ] = "",
    content: Annotated[
        bool, typer.Option("--content", help="Read all that Kafka still holds, and compare it with its rows.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> int:
    """Say whether anything was lost, and why: 0 if not, 1 if lost, 4 if it cannot be told. For cron and CI."""
    from headrace_cli import console
    from headrace_cli.operating.loss import of_kafka, of_tables

    begin = parse_moment(since, "--since", datetime.now(UTC)) if since else None
    settings, checks = _known_kafka(state, kafka), []
    tables = lake or state / "lake"
    try:
        for check in chain(of_tables(tables, begin), of_kafka(settings, tables, content=content) if settings else ()):
            checks.append(check)
            if not as_json:
                console.line(check["check"], "good" if check["ok"] else "bad", check["detail"])
                sys.stdout.flush()  # Kafka may be silent for half a minute
    except CommandError as error:
        if error.status != EXIT_FAILED:
            raise
        raise CommandError(str(error), status=EXIT_DOUBT) from error  # 1 says that something was lost
    lost = any(check["ok"] is False for check in checks)
    bad = ", ".join(check["check"] for check in checks if not check["ok"])
    verdict = f"{'lost' if lost else 'in doubt'}: {bad}" if bad else "nothing was lost"
    if settings is None:
        verdict += ", without a look at Kafka: name it with --kafka HOST:PORT"
    if as_json:
        print(json.dumps({"verdict": verdict, "lost": lost, "checks": checks}, ensure_ascii=False, indent=1))
    else:
        console.OUT.print(verdict, style="bold red" if bad else "bold green", markup=False)
    return EXIT_FAILED if lost else EXIT_DOUBT if bad else 0


def landed_and_checked(tally: Tally, state: Path, *, as_json: bool = False) -> int:
    """Wait until the lake has what was acknowledged to a run of `send`, then do as `check_loss`. Return `EXIT_DOUBT` if it has
    not in time, and nothing was lost.
    """
    from headrace_cli import console
    from headrace_cli.verbs import query

    deadline, events, rejects = time.monotonic() + LANDING_SECONDS, 0, 0
    sql = _LANDED.format(run=tally.run, began=tally.began.replace(microsecond=0))
    with console.ERR.status("landing"):
        while events + rejects < tally.acknowledged and time.monotonic() < deadline:
            with suppress(HeadraceError):  # there is no table yet
                ((events, rejects),) = (row.values() for row in query.run(sql, state / "lake"))
            time.sleep(0.3)
    landed = events + rejects >= tally.acknowledged
    said = f"{events:,} of {tally.acknowledged:,} acknowledged events landed, and {rejects:,} in quarantine"
    if not as_json:
        console.line("lake", "good" if landed else "bad", said if landed else f"{said}, within {LANDING_SECONDS:.0f} s")
    return check_loss(state, as_json=as_json) or (0 if landed else EXIT_DOUBT)


def _known_kafka(state: Path, named: str | None) -> KafkaSettings | None:
    from headrace_cli.stack.reach import kafka_settings

    try:
        return kafka_settings(state, named)
    except CommandError as error:
        if named is not None or error.status != EXIT_NOTHING_RUNS:
            raise
        return None
