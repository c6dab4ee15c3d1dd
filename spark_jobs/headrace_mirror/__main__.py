"""``python -m headrace_mirror [--once]``: follows the Delta tables of a lake with Iceberg tables that list the same files.

Exits with 0, with 78 (wrong settings) or with 1 (it cannot go on: one line says why).
"""

from __future__ import annotations

import argparse
import sys


def main() -> int:
    """Runs the mirror; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m headrace_mirror",
        description="Follows the Delta tables with Iceberg tables that list the same files. It copies nothing.",
    )
    parser.add_argument("--once", action="store_true", help="catch up, then end")
    arguments = parser.parse_args()
    from headrace_mirror.process import run  # with all that the help does without

    return run(once=arguments.once)


if __name__ == "__main__":
    sys.exit(main())
