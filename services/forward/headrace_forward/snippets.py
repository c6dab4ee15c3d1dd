"""How Forward's clients are pointed at Headrace: one text for each. Pure."""

from __future__ import annotations

from typing import Final

from headrace_common.protocol import Snippet, Snippets

_FLUENT_BIT: Final = """\
[OUTPUT]
    Name                  forward
    Match                 *
    Host                  $host
    Port                  $port
    Require_ack_response  true
    Retry_Limit           no_limits
"""
_FLUENTD: Final = """\
<match **>
  @type forward
  require_ack_response true
%s  <server>
    host $host
    port $port
  </server>
</match>
"""
_NODE: Final = """\
const { FluentClient } = require("@fluent-org/logger");
%sconst logger = new FluentClient("app", {
  socket: { host: "$host", port: $port, timeout: 60000%s },
  ack: { ackTimeout: 60000 },
});
logger.emit("web", { message: "hello" });
"""
_GO: Final = """\
// github.com/fluent/fluent-logger-golang
logger, err := fluent.New(fluent.Config{%sFluentHost: "$host", FluentPort: $port,
    RequestAck: true, SubSecondPrecision: true, ReadTimeout: 5 * time.Minute})
"""
_JAVA: Final = """\
// org.komamitsu:fluency-core and fluency-fluentd
FluencyBuilderForFluentd builder = new FluencyBuilderForFluentd();
builder.setAckResponseMode(true);
%sFluency fluency = builder.build("$host", $port);
"""
_RUBY: Final = """\
require "fluent-logger"
logger = Fluent::Logger::FluentLogger.new("app", host: "$host", port: $port, nanosecond_precision: true%s)
logger.post("web", { message: "hello" })
"""
_PYTHON: Final = """\
from fluent import sender  # fluent-logger

logger = sender.FluentSender("app", host="$host", port=$port, nanosecond_precision=True)
logger.emit("web", {"message": "hello"})
"""
_DOCKER: Final = """\
docker run --log-driver=fluentd --log-opt fluentd-address=%s://$host:$port \\
  --log-opt fluentd-request-ack=true --log-opt tag=docker.{{.Name}} IMAGE
"""
_NO_ACKS: Final = "It asks for no acknowledgement: it does not notice a loss."

SNIPPETS: Final = Snippets((
    Snippet(
        "fluent-bit", "Fluent Bit", "",
        _FLUENT_BIT, f"{_FLUENT_BIT}    tls                   on\n    tls.verify            on\n    tls.ca_file           $ca\n",
        note="Without Require_ack_response nothing is acknowledged; without Retry_Limit no_limits it gives up after one retry.",
        first=True,
    ),
    Snippet(
        "fluentd", "fluentd", "",
        _FLUENTD % "", _FLUENTD % "  transport tls\n  tls_cert_path $ca\n  tls_verify_hostname true\n",
        first=True,
    ),
    Snippet(
        "docker", "Docker's fluentd log driver", "bash",
        _DOCKER % "tcp", f"# Docker's daemon must trust $ca: it has no option for it\n{_DOCKER % 'tls'}",
        note="Not with fluentd-async=true: it throws away what it has buffered when a container ends.",
    ),
    Snippet(
        "python", "Python: fluent-logger", "python", _PYTHON,
        tls_note="fluent-logger for Python speaks no TLS: start the stack without --tls, or send through Fluent Bit.",
        note=_NO_ACKS,
    ),
    Snippet(
        "go", "Go: fluent-logger-golang", "go",
        _GO % "", "// with SSL_CERT_FILE=$ca in the environment\n" + _GO % 'FluentNetwork: "tls", ',
        note="Without Async: then a message that could not be sent is an error that your code sees.",
    ),
    Snippet(
        "node", "Node.js: @fluent-org/logger", "js",
        _NODE % ("", ""),
        _NODE % ('const fs = require("fs");\n', ', tls: { ca: fs.readFileSync("$ca") }'),
        note="Its own time limits (500 ms for an acknowledgement) would double events whenever Kafka is slow: leave them raised.",
    ),
    Snippet(
        "ruby", "Ruby: fluent-logger", "ruby", _RUBY % "", _RUBY % ', tls_options: { ca: "$ca" }', note=_NO_ACKS
    ),
    Snippet(
        "java", "Java: fluency", "java",
        _JAVA % "",
        "// keytool -importcert -noprompt -file $ca -keystore headrace.p12 -storepass changeit\n"
        "// java -Djavax.net.ssl.trustStore=headrace.p12 -Djavax.net.ssl.trustStorePassword=changeit …\n"
        + _JAVA % "builder.setSslEnabled(true);\n",
        note="Each attempt has a chunk id of its own, so a resend lands twice.",
    ),
))  # fmt: skip
