"""How Logjam's clients are pointed at Headrace: one text for each. Pure."""

from __future__ import annotations

from typing import Final

from headrace_common.protocol import Snippet, Snippets

SNIPPETS: Final = Snippets((
    Snippet(
        "logjam", "logjam_agent", "ruby",
        'LogjamAgent.add_forwarder(:zmq, host: "$host:$port")\n',
        tls_note="logjam_agent speaks no CURVE, which `up --tls` asks of Logjam's clients: start the stack without --tls, and let"
        " HEADRACE_LOGJAM__ALLOW name its network.",
    ),
), """\
  Consume your logjam-devices, too:
                HEADRACE_LOGJAM__ENDPOINTS='{"device-1": "tcp://HOST:9606"}' ./headrace up
""")  # fmt: skip
