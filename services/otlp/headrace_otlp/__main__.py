"""``python -m headrace_otlp``: the OTLP receiver."""

from __future__ import annotations

from headrace_common.protocol import run

from headrace_otlp.protocol import PROTOCOL

if __name__ == "__main__":
    run(PROTOCOL)
