"""Kills the job at random points while it lands, and then checks the lake row by row.

SIGKILL hits the driver, the JVM or both: during the start, after a random time, or between the writes of two tables. Some kills
also delete the checkpoint. Half of the partitions lag the others by hours; one record in 100 is a resend. At the end all
partitions are replayed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import time
from typing import Any, Final

from headrace_lake.configuration.settings import LakeSettings

from benchmarks.endurance.traffic import Traffic, fill
from benchmarks.endurance.verify import compare
from benchmarks.stage import Stage, say, stage, write
from tests.contract.processes import below, command, kill
from tests.lake.lander import Lander

PARTITIONS: Final = 6
POINTS: Final = ("batch begins", "events written", "quarantine written", "batch written")
_LONGEST_START: Final = 12.0
_LONGEST_LIFE: Final = 10.0
_LONGEST_END: Final = 3600.0


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--scale", type=float, default=1.0, help="factor for --events and --kills")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))


def run(options: argparse.Namespace) -> int:
    """Runs the trial. The exit status is 1 if a row is wrong."""
    events, kills = round(options.events * options.scale), max(2, round(options.kills * options.scale))
    rng = random.Random(options.seed)
    collapse = LakeSettings().horizon > 0
    with stage(PARTITIONS) as here:
        sent = here.folder / "sent.csv"
        counts = asyncio.run(fill(here.kafka, Traffic(events, PARTITIONS, options.seed), sent, events // 2000))
        say(f"seed {options.seed}: {counts}")
        began = time.monotonic()
        done = [_kill(here, rng, number, kills, max(1_000, events // 100)) for number in range(kills)]
        for what in ("the rest", "a replay"):
            most = events // 10
            job = here.replay(batch_records=most) if what == "a replay" else here.start(once=True, batch_records=most)
            if job.wait(_LONGEST_END):
                say(f"{what} stopped: {job.tail()}")
                return 1
            say(f"{what} ended after {time.monotonic() - began:.0f} s")
        wrong = compare(here.lake, sent, collapse=collapse)
        for line in wrong:
            say(f"WRONG: {line}")
        if wrong:
            return 1
    lost = sum(kill["checkpoint_lost"] for kill in done)
    rows: list[tuple[str, object]] = [
        ("events sent", f"{events:,}"),
        ("… of them resends, collapsed" if collapse else "… of them resends", f"{counts.get('resend', 0):,}"),
        ("… resends beyond the horizon, landed", counts.get("far", 0)),
        ("… of one client-chosen `_id` with other content, landed", counts.get("spoofed", 0)),
        ("… bad records, in quarantine", f"{counts.get('bad', 0):,}"),
        ("kills (SIGKILL)", f"{len(done)}, {lost} with the checkpoint deleted"),
        ("… between two tables' writes", sum(kill["point"] in POINTS for kill in done)),
        ("… then replayed", "all partitions"),
        ("rows that are wrong, missing or double", 0),
    ]
    title = f"{len(done)} kills at random over {events:,} events, {PARTITIONS // 2} of {PARTITIONS} partitions hours behind."
    write("endurance-kills", title, rows, by="benchmarks.endurance kills", dry=options.dry)
    return 0


def _kill(here: Stage, rng: random.Random, number: int, kills: int, batch: int) -> dict[str, Any]:
    """One life of the job, and how it ended."""
    lose = number % 5 == 3
    victim = "both" if lose else rng.choice(("both", "both", "driver", "jvm"))
    point = rng.choice(("start", "time", "time", *POINTS))
    job = here.start(batch_records=batch)
    if point == "start":
        time.sleep(rng.uniform(0.5, _LONGEST_START))
    else:
        job.next("landing")
        if point == "time":
            time.sleep(rng.uniform(0, _LONGEST_LIFE))
        else:
            for _ in range(rng.randint(1, 3)):
                job.next(point)
    _strike(job, victim)
    if lose:
        here.lose_checkpoint()
    landed = [line["batch"] for line in job.lines if line["event"] == "landed"]
    say(
        f"kill {number + 1}/{kills}: {victim} at {point!r}, {len(landed)} batches landed{', checkpoint lost' if lose else ''}"
    )
    return {"point": point, "victim": victim, "batches": len(landed), "checkpoint_lost": lose}


def _strike(job: Lander, victim: str) -> None:
    if victim == "both":
        job.kill()
        return
    java = [child.pid for child in below(job.pid) if "java" in map(os.path.basename, command(child)[:1])]
    # if only the driver dies, its JVM notices by itself, while the next run starts
    kill(job.pid if victim == "driver" or not java else java[0])
    job.wait()
