"""``python -m headrace_syslog.relp``: the RELP receiver."""

from __future__ import annotations

from headrace_common.protocol import run

from headrace_syslog.protocol import RELP

if __name__ == "__main__":
    run(RELP)
