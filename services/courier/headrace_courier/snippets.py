"""How Courier's clients are pointed at Headrace: one text for each. Pure."""

from __future__ import annotations

from typing import Final

from headrace_common.protocol import Snippet, Snippets

_COURIER: Final = """\
network:
  transport: %s
  servers: [ "$host:$port" ]
"""

SNIPPETS: Final = Snippets((
    Snippet(
        "log-courier", "log-courier", "yaml", _COURIER % "tcp", f"{_COURIER % 'tls'}  ssl ca: $ca\n",
    ),
))  # fmt: skip
