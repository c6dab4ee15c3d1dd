"""The cost of landing: CPU per event of the job beside a sink that discards the same decoded rows.

    .venv/bin/python -m benchmarks.landing [--events N] [--batch 190000]

Starts an embedded Kafka, fills a topic and lands it several times in one JVM; the first rounds warm it up and do not count.
Writes ``benchmarks/results/landing.md``.
"""

from __future__ import annotations

import argparse

from benchmarks.landings import job


def main() -> None:
    """Takes the measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=job.EVENTS)
    parser.add_argument("--batch", type=int, default=190_000, help="records in a batch")
    parser.add_argument("--rounds", type=int, default=job.ROUNDS)
    parser.add_argument("--warm", type=int, default=job.WARM, help="rounds that do not count")
    job.run(parser.parse_args())


if __name__ == "__main__":
    main()
