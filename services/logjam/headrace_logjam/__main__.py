"""``python -m headrace_logjam``: the Logjam receiver."""

from __future__ import annotations

from headrace_common.protocol import run

from headrace_logjam.protocol import PROTOCOL

if __name__ == "__main__":
    run(PROTOCOL)
