"""The Forward receiver without its native core, wherever that is built: ``python -m tests.forward.python``."""

from __future__ import annotations

import os

from headrace_common.protocol import run
from headrace_common.record import native
from headrace_forward.protocol import PROTOCOL

if __name__ == "__main__":
    os.environ[native.VARIABLE] = native.OFF
    run(PROTOCOL)
