"""How Lumberjack's clients are pointed at Headrace: one text for each. Pure."""

from __future__ import annotations

from typing import Final

from headrace_common.protocol import Snippet, Snippets

_BEATS: Final = """\
output.logstash:
  hosts: ["$host:$port"]
"""

SNIPPETS: Final = Snippets((
    Snippet(
        "filebeat", "Filebeat and the other Beats", "yaml",
        _BEATS, _BEATS + '  ssl.certificate_authorities: ["$ca"]\n',
    ),
    Snippet(
        "logstash", "Logstash's lumberjack output", "",
        tls='output {\n  lumberjack {\n    hosts => ["$host"]\n    port => $port\n    ssl_certificate => "$ca"\n'
        "    codec => json\n  }\n}\n",
        plain_note="Logstash's lumberjack output speaks TLS only: start the stack with --tls.",
    ),
))  # fmt: skip
