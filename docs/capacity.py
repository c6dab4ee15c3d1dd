"""The page of capacities: what the benchmarks measured, turned into cores, memory and disk for a load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

RESULTS: Final = Path(__file__).parent.parent / "benchmarks" / "results"
RATES: Final = (1_000, 10_000, 50_000)
DAY: Final = 86_400
GB: Final = 1e9
SAFETY: Final = 2
"""Plan for this multiple of the measured cost: bursts, a slower machine, another form of events."""

HEAD: Final = """\
# Capacity

Written from the results files in `benchmarks/results` ([performance.md](performance.md) has them whole). They come from a
machine with two cores that the broker and the clients shared, so yours may be half or twice as fast. Take the columns as a first
plan, run the benchmarks on your machine, and watch CPU, `headrace_oldest_pending_seconds` and lag afterwards.

## One receiver process

A process uses one core. What costs is the event in a large frame, and the frame when frames are small: clients that send
events one by one cost {small_ratio:.0f} times as much for each event. All rows but the second are with the native core, which the
images have.

| protocol, frame | CPU seconds per million events | events/s on one core | resident under load |
|---|---|---|---|
"""

MEMORY: Final = """
Memory: {idle:.0f} MB idle, and the frames in flight, at most `LIMITS__PROCESS_BUDGET` (256 MiB), once as received and once as
they are written to Kafka. So the chart's limit is twice the budget and 128 MiB. What OpenSSL and malloc keep for
connections by TLS no budget counts: up to {tls:.0f} KB for each after frames of 60 KB, so 96 MiB for 1,000 clients
([crowds](performance.md#crowds)). A test holds 10,000 idle connections.

## The landing job

| figure | value |
|---|---|
| CPU seconds per million records, one JVM (`LAKE__DEDUP=map`) | {landing:.1f} |
| … on a cluster (`LAKE__DEDUP=arrays`) | {arrays:.1f} |
| CPU of driver and JVM at {steady_rate:,} events/s, a batch every 5 s | {steady_cpu:.2f} cores |
| memory for each remembered id of the last hour, `map` / `arrays` | {id_map:.0f} / {id_arrays:.0f} bytes |

Only ids that begin with `d.` are remembered: `LAKE__DEDUP_MEMORY` of 256 MiB holds {ids_in_256:.1f} million of them with `map`,
which is {rate_in_256:,.0f} events/s over the horizon of an hour. Above that raise the heap, or shorten `LAKE__HORIZON`.

Each batch has a cost of its own, however many events it has, so at low rates the interval of batches decides. Landing and
merging together, by events a second and `LAKE__TRIGGER`, half an hour after a start; in its first minutes, when the JVM compiles,
a job takes more:

{by_trigger}
With a longer interval the same events cost less, and are in the tables later by as much.

## What a load needs

With a plan of {safety} times the measured cost, for events of about 300 bytes in frames of hundreds:

"""

DISK: Final = """
## Disk

{sizes}
Kafka: bytes of an event × events a second × seconds of retention (`TOPICS__EVENTS_RETENTION`, a week) × replicas. The lake:
bytes of an event × events a second × 86,400 a day; compaction makes it smaller later, and replaced files stay for
`LAKE__VACUUM_AGE` (a week).

The segment service stores what is appended a second time, as blocks in `headrace.segments`: bytes appended × replicas, for ever,
unless `SEGMENT__RETENTION_TIME` or `SEGMENT__RETENTION_BYTES` lets it go.

| events/s | Kafka, a week, 3 replicas | lake, a day |
|---|---|---|
"""

NO_SIZES: Final = """\
`python -m benchmarks.sizes` measures what an event takes on Kafka's disk and in the table, and adds it here. Until it has run
on your events, plan with the size of the body on Kafka and half of it in the lake: real logs compress better.
"""


def _read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def page() -> str:
    """docs/capacity.md."""
    forward, lumberjack, courier = _read("forward"), _read("lumberjack"), _read("courier")
    landing, steady = _read("landing"), _read("endurance-steady")
    costs = [
        ("Forward, 500 events", lumberjack["forward"]),
        ("… in Python alone", forward["saturated"]),
        ("Lumberjack v2, compressed, 500 events", lumberjack["shapes"]["J in C, 500"]),
        ("Lumberjack v1, 500 events", lumberjack["shapes"]["v1 in C, 500"]),
        ("Courier, 500 events", courier["shapes"]["JDAT, 500"]),
        ("Forward, 1 event", lumberjack["forward_1"]),
        ("Lumberjack v2, 1 event", lumberjack["shapes"]["J in C, 1"]),
        ("Courier, 1 event", courier["shapes"]["JDAT, 1"]),
    ]
    one, many = lumberjack["forward_1"], lumberjack["forward"]
    text = HEAD.format(small_ratio=one["cpu_seconds_per_million"] / many["cpu_seconds_per_million"])
    for name, cost in costs:
        cpu = cost["cpu_seconds_per_million"]
        text += f"| {name} | {cpu:.1f} | {1e6 / cpu:,.0f} | {cost['resident_max_mb']:.0f} MB |\n"
    cpu_landing = landing["cpu_seconds_per_million"]
    remembered = landing["remembered"]
    per_id = {name: remembered[name]["bytes"] / remembered[name]["ids"] for name in ("map", "arrays")}
    ids = 256 * 2**20 / per_id["map"]
    looks = steady["looks"]
    text += MEMORY.format(
        idle=forward["resident_idle_mb"],
        tls=max(each["kb_a_connection"] for each in _read("crowds")["crowds"]["many by TLS"].values()),
        landing=cpu_landing["map"],
        arrays=cpu_landing["arrays"],
        steady_rate=steady["rate"],
        steady_cpu=(looks[-1]["cpu"] - looks[0]["cpu"]) / (looks[-1]["second"] - looks[0]["second"]),
        id_map=per_id["map"],
        id_arrays=per_id["arrays"],
        ids_in_256=ids / 1e6,
        rate_in_256=ids / 3600,
        by_trigger=_by_trigger(),
        safety=SAFETY,
    )
    text += "| events/s | cores for receivers | receivers with one to spare | cores for landing |\n|---|---|---|---|\n"
    dearest = max(cost["cpu_seconds_per_million"] for _, cost in costs[:5])
    for rate in RATES:
        cores = SAFETY * dearest * rate / 1e6
        landing_cores = SAFETY * cpu_landing["map"] * rate / 1e6
        text += f"| {rate:,} | {cores:.2f} | {max(1, round(cores + 0.49)) + 1} | {max(0.5, landing_cores):.1f} |\n"
    return text + _disk()


def _by_trigger() -> str:
    """The measured rates and intervals."""
    text = "| events/s | seconds between batches | CPU seconds per million events | cores |\n|---|---|---|---|\n"
    for each in _read("endurance-rates")["measured"]:
        cpu, rate = each["cpu_per_million"], each["rate"]
        text += f"| {rate:,} | {each['trigger']:g} | {cpu:.1f} | {cpu * rate / 1e6:.2f} |\n"
    return text


def _disk() -> str:
    if not (RESULTS / "sizes.json").exists():
        return DISK.partition("{sizes}")[0] + NO_SIZES
    sizes = _read("sizes")["sizes"]
    table = (RESULTS / "sizes.md").read_text()
    text = DISK.format(sizes=table)
    kafka, lake = (max(size[where] for size in sizes.values()) for where in ("kafka", "lake"))
    for rate in RATES:
        text += f"| {rate:,} | {kafka * rate * 7 * DAY * 3 / GB:,.0f} GB | {lake * rate * DAY / GB:,.1f} GB |\n"
    return text


if __name__ == "__main__":
    print(page())
