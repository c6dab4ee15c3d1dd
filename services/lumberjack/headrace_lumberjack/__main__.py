"""``python -m headrace_lumberjack``: the Lumberjack receiver."""

from __future__ import annotations

from headrace_common.protocol import run

from headrace_lumberjack.protocol import PROTOCOL

if __name__ == "__main__":
    run(PROTOCOL)
