"""The Forward receiver without its native core, wherever that is built: ``python -m tests.forward.python``."""

from __future__ import annotations

import os
import sys

from headrace_common.__main__ import main
from headrace_common.record import native

if __name__ == "__main__":
    os.environ[native.VARIABLE] = native.OFF
    sys.argv[1:] = ["forward"]
    main()
