"""``python -m headrace_segment``: the segment service."""

from __future__ import annotations

from headrace_common.protocol import run

from headrace_segment.protocol import PROTOCOL

if __name__ == "__main__":
    run(PROTOCOL)
