"""The landing job, which can be held between the last look at the name of a commit and the step that takes the name.

Argument: a folder. If it has a file `hold`, the next commit of `events` renames that to `held`, and waits until it is gone.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from headrace_lake.__main__ import main
from headrace_lake.spark import jvm

STEP: Final = "Files.createLink("
HOLD: Final = """
    java.io.File held = new java.io.File("FOLDER/held");
    if (to.toString().contains("/events/_delta_log/") && new java.io.File("FOLDER/hold").renameTo(held)) {
        while (held.exists()) { java.util.concurrent.locks.LockSupport.parkNanos(1000000L); }
    }
"""


def hold_in(folder: str) -> None:
    """Lets the JVM compile our class of local files with the hold."""
    compiled = jvm._compiled

    def with_hold(spark: Any, loader: Any, source: str) -> dict[str, bytes]:
        return compiled(spark, loader, source.replace(STEP, HOLD.replace("FOLDER", folder) + STEP))

    jvm._compiled = with_hold


if __name__ == "__main__":
    hold_in(sys.argv.pop(1))
    sys.exit(main())
