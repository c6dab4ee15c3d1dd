"""Writes the tables of settings and metrics from their declarations: ``python docs/generate.py``. A test compares them."""

from __future__ import annotations

import sys
from pathlib import Path

from pydantic import SecretStr
from pydantic_settings import BaseSettings

DOCS = Path(__file__).parent
ROOT = DOCS.parent
PARTS_OF_PATH = ("libs/common", "services/courier", "services/forward", "services/lumberjack", "spark_jobs", "cli")
sys.path[:0] = [str(ROOT / part) for part in PARTS_OF_PATH]

from headrace_common.metrics import LakeMetrics, ReceiverMetrics  # noqa: E402
from headrace_common.settings import ServiceSettings, TopicsProcessSettings, each_setting, variable  # noqa: E402
from headrace_courier.settings import CourierSettings  # noqa: E402
from headrace_forward.settings import ForwardSettings  # noqa: E402
from headrace_lake.settings import LakeProcessSettings  # noqa: E402
from headrace_lumberjack.settings import LumberjackSettings  # noqa: E402

PARTS: list[tuple[str, type[BaseSettings]]] = [
    ("Every receiver", ServiceSettings),
    ("Forward only", ForwardSettings),
    ("Courier only, or other there", CourierSettings),
    ("Lumberjack only", LumberjackSettings),
    ("Topics (`python -m headrace_common.topics`)", TopicsProcessSettings),
    ("Landing job", LakeProcessSettings),
]


def settings() -> str:
    """The page of settings: each where it first appears, and again where a part has another default."""
    lines = [
        "# Settings",
        "",
        "Environment variables, or a YAML file (`--config`) with the sections as mappings; the environment wins. Durations are",
        "seconds, sizes bytes. A secret may come from a file: `…_FILE`. An unknown name in a part's own sections, a value out of",
        "range or a contradiction ends the process with status 78 and one line for each problem.",
    ]
    seen: dict[str, object] = {}
    for title, cls in PARTS:
        rows = [row for row in each_setting(cls) if seen.get(variable(*row[:2]), ...) != row[2].default]
        seen |= {variable(*row[:2]): row[2].default for row in rows}
        if rows:
            lines += ["", f"## {title}", "", "| variable | default | meaning |", "|---|---|---|"]
        for section, name, info in rows:
            default = info.default.get_secret_value() if isinstance(info.default, SecretStr) else info.default
            shown = "" if default in (None, "") else f"`{default}`"
            lines.append(f"| `{variable(section, name)}` | {shown} | {info.description} |")
    return "\n".join(lines) + "\n"


def metrics() -> str:
    """The page of metrics."""
    lines = ["# Metrics", "", "At `/metrics` of every receiver, in Prometheus' text format.", ""]
    lines += ["| metric | kind | what it says |", "|---|---|---|"]
    lines += [f"| `{name}` | {kind} | {text} |" for name, kind, text in ReceiverMetrics().table()]
    lines += ["", "At `/metrics` of the landing job.", "", "| metric | kind | what it says |", "|---|---|---|"]
    lines += [f"| `{name}` | {kind} | {text} |" for name, kind, text in LakeMetrics().table()]
    return "\n".join(lines) + "\n"


RESULTS = ROOT / "benchmarks" / "results"

PERFORMANCE = """\
# Performance

Machines differ by half and more, so a figure here is only good beside another of the same run: each results file also
holds the cost of the work that cannot be avoided, measured in the same minutes. The tables below are those files, written
by the command that each names; run it to have your own.

## Why events are encoded by hand

aiokafka's batch builder takes each record with a list of headers, and encodes all eight for every event. Most of them are
the same for a whole frame. `headrace_common/record.py` encodes what a frame's events share once, and each event once, as
bytes that no batch needs to look into again; the two rows "unavoidable" below are the same work with the one and with the
other. An event is then one object that Python's cycle collector does not track, where it was a dozen that it walked.

Decoding msgpack twice sounds like waste: entries are decoded by msgspec, encoded again, and only if the bytes are the same
is the fast path believed (a repeated key, a float32, a length written wider than need be would show). What is not believed
takes a slower path that loses nothing.

## Why ids are remembered in memory

The landing job compares each event with those of the last hour. As a join with a table of ids, or with Spark's own
`dropDuplicatesWithinWatermark` (which also discards what is late), that doubled the cost of landing when it was tried, and it
grows with the table. A map in the JVM that the writing query asks row by row costs one look-up: the id as bytes, four longs an
entry, no object. On a cluster the ids have to come to one place: each batch is read a second time, for its ids alone and at a
glance (whether a record is sound is judged once, by the query that writes), and sorted arrays are searched for all of them at
once. Arrays of different ages are merged only when they have become alike in length, so an event costs the same however many
ids are held.

The generated code of a query is compiled by Spark and then by the JVM. What differs from batch to batch, such as the landing
time, is therefore handed to the code and never stands in it.

## What a batch costs beside its events

Two commits: of the events, and of the line in `batches`; three with something for quarantine. For a commit with a transaction
identifier, by which a batch counts once, Delta's writer first gathers the state of the whole table with a Spark job. The job
follows the tables' logs anyway and takes the writer's steps with that answer instead (`headrace_lake/append.py`, for the versions
of Delta that it knows; with others Delta's writer does it all). What is left of a batch's own cost is Spark's planning, so larger
batches, by a longer `HEADRACE_LAKE__TRIGGER`, cost less per event.

What was compared on the way: zstd at level 1 instead of 3 (files are larger until they are merged, at level 3 then), no
dictionaries and no ranges for columns whose values hardly repeat, many counts in one aggregate instead of one each. Writing
without the sort by day (`spark.sql.maxConcurrentOutputFileWriters`) gained nothing.
"""


def performance() -> str:
    """The page of figures: what the benchmarks wrote."""
    pages = sorted(RESULTS.glob("*.md"))
    tables = [f"## {path.stem.replace('-', ', ').capitalize()}\n\n{path.read_text()}" for path in pages]
    return "\n".join((PERFORMANCE, *tables))


PAGES = {DOCS / "settings.md": settings, DOCS / "metrics.md": metrics, DOCS / "performance.md": performance}

if __name__ == "__main__":
    for path, page in PAGES.items():
        path.write_text(page())
