"""``python -m headrace_forward``: the Forward receiver."""

from __future__ import annotations

from headrace_common.protocol import run

from headrace_forward.protocol import PROTOCOL

if __name__ == "__main__":
    run(PROTOCOL)
