"""``python -m headrace_segment``: the segment service. With ls, cat, info, seal or delete: looks at segments instead."""

from __future__ import annotations

import sys

from headrace_common.protocol import run

from headrace_segment.protocol import PROTOCOL

if __name__ == "__main__":
    if sys.argv[1:2] and not sys.argv[1].startswith("-"):
        from headrace_segment import look

        sys.exit(look.main(sys.argv[1:]))
    run(PROTOCOL)
