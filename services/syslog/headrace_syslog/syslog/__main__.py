"""``python -m headrace_syslog.syslog``: the receiver of syslog over TCP and UDP."""

from __future__ import annotations

from headrace_common.protocol import run

from headrace_syslog.protocol import SYSLOG

if __name__ == "__main__":
    run(SYSLOG)
