"""``python -m headrace_courier``: the Courier receiver."""

from __future__ import annotations

from headrace_common.protocol import run

from headrace_courier.protocol import PROTOCOL

if __name__ == "__main__":
    run(PROTOCOL)
