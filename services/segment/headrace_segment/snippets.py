"""How the segment service's clients are pointed at Headrace: one text for each. Pure."""

from __future__ import annotations

from typing import Final

from headrace_common.protocol import Snippet, Snippets

_PRAVEGA: Final = """\
// your Controller answers getEndpointForSegment so; docs/protocols/segment.md has the other calls
new PravegaNodeUri("$host", $port)
%s"""

SNIPPETS: Final = Snippets((
    Snippet(
        "pravega", "Pravega's Java client", "java",
        _PRAVEGA % "",
        _PRAVEGA % 'ClientConfig.builder().enableTlsToSegmentStore(true).trustStore("$ca").build()\n',
    ),
), """\
  Any client of the Streaming Service protocol.
""")  # fmt: skip
