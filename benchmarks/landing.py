"""The cost of landing: CPU per event of the job, and what it consists of.

    .venv/bin/python -m benchmarks.landing [job | large | naive | partitions | stages] [--events N] [--batch 190000]

Starts an embedded Kafka, fills a topic and lands it several times in one JVM; the first rounds warm it up and do not count.
Writes ``benchmarks/results/landing.json`` and ``.md``; ``landing-large`` and so on for the others:

- job: the job beside a sink that discards the same decoded rows.
- large: the job on tables with 1 and with 20 million remembered ids (`--rows`).
- naive: the job beside jobs that a Spark user writes in an afternoon.
- partitions: topics of 4, 24 and 200 partitions (`--partitions`), in large and in small batches.
- stages: more and more of the job's own steps, until it is the job.
"""

from __future__ import annotations

import argparse

from benchmarks.landings import job, large, naive, partitions, stages

MEASURES = {module.__name__.rpartition(".")[2]: module for module in (job, large, naive, partitions, stages)}


def main() -> None:
    """Takes one measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measure", nargs="?", choices=MEASURES, default="job")
    parser.add_argument("--events", type=int, help="default: the measure's own, as of --rounds and --warm")
    parser.add_argument("--batch", type=int, default=190_000, help="records in a batch")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--warm", type=int, help="rounds that do not count")
    parser.add_argument("--rows", type=int, nargs=2, default=[1_000_000, 20_000_000], help="of large")
    parser.add_argument("--partitions", type=int, nargs="+", default=[4, 24, 200], help="of partitions")
    arguments = parser.parse_args()
    module = MEASURES[arguments.measure]
    for name in ("events", "rounds", "warm"):
        if getattr(arguments, name) is None:
            setattr(arguments, name, getattr(module, name.upper()))
    module.run(arguments)


if __name__ == "__main__":
    main()
