"""How clients are pointed at Headrace: one text for each, which `snippet`, the end of the demo and docs/clients.md show."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Final

from headrace_cli.errors import CommandError
from headrace_cli.places import command
from headrace_cli.stack.state import StateFolder
from headrace_cli.verbs import console

_EVERYWHERE: Final = ("0.0.0.0", "::", "[::]")  # noqa: S104  (no address to connect to)


@dataclass(frozen=True)
class Address:
    """Where a receiver listens. `ca`: file of the authority to trust; empty without TLS. `keys`: folder of CURVE keys."""

    host: str
    port: int
    ca: str = ""
    keys: str = ""


@dataclass(frozen=True)
class Client:
    """A client's configuration for a receiver (`protocol`). `plain` and `tls` have ``$host``, ``$port`` and ``$ca``.

    `tls_note` and `plain_note` say why there is no such configuration. `note`: what to know about its acknowledgements.
    """

    name: str
    title: str
    protocol: str
    syntax: str
    plain: str = ""
    tls: str = ""
    plain_note: str = ""
    tls_note: str = ""
    note: str = ""

    def text(self, address: Address) -> str:
        """The configuration for this address. Raises `CommandError` if the client cannot speak so."""
        found, why = (self.tls, self.tls_note) if address.ca or address.keys else (self.plain, self.plain_note)
        if not found:
            raise CommandError(why)
        return Template(found).substitute(host=address.host, port=address.port, ca=address.ca, keys=address.keys)


_BEATS: Final = """\
output.logstash:
  hosts: ["$host:$port"]
"""
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
_COURIER: Final = """\
network:
  transport: %s
  servers: [ "$host:$port" ]
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
_PRAVEGA: Final = """\
// your Controller answers getEndpointForSegment so; docs/protocols/segment.md has the other calls
new PravegaNodeUri("$host", $port)
%s"""

CLIENTS: Final[Sequence[Client]] = (
    Client(
        "filebeat", "Filebeat and the other Beats", "lumberjack", "yaml",
        _BEATS, _BEATS + '  ssl.certificate_authorities: ["$ca"]\n',
    ),
    Client(
        "logstash", "Logstash's lumberjack output", "lumberjack", "",
        tls='output {\n  lumberjack {\n    hosts => ["$host"]\n    port => $port\n    ssl_certificate => "$ca"\n'
        "    codec => json\n  }\n}\n",
        plain_note="Logstash's lumberjack output speaks TLS only: start the stack with --tls.",
    ),
    Client(
        "fluent-bit", "Fluent Bit", "forward", "",
        _FLUENT_BIT, f"{_FLUENT_BIT}    tls                   on\n    tls.verify            on\n    tls.ca_file           $ca\n",
        note="Without Require_ack_response nothing is acknowledged; without Retry_Limit no_limits it gives up after one retry.",
    ),
    Client(
        "fluentd", "fluentd", "forward", "",
        _FLUENTD % "", _FLUENTD % "  transport tls\n  tls_cert_path $ca\n  tls_verify_hostname true\n",
    ),
    Client(
        "docker", "Docker's fluentd log driver", "forward", "bash",
        _DOCKER % "tcp", f"# Docker's daemon must trust $ca: it has no option for it\n{_DOCKER % 'tls'}",
        note="Not with fluentd-async=true: it throws away what it has buffered when a container ends.",
    ),
    Client(
        "log-courier", "log-courier", "courier", "yaml", _COURIER % "tcp", f"{_COURIER % 'tls'}  ssl ca: $ca\n",
    ),
    Client(
        "python", "Python: fluent-logger", "forward", "python", _PYTHON,
        tls_note="fluent-logger for Python speaks no TLS: start the stack without --tls, or send through Fluent Bit.",
        note=_NO_ACKS,
    ),
    Client(
        "go", "Go: fluent-logger-golang", "forward", "go",
        _GO % "", "// with SSL_CERT_FILE=$ca in the environment\n" + _GO % 'FluentNetwork: "tls", ',
        note="Without Async: then a message that could not be sent is an error that your code sees.",
    ),
    Client(
        "node", "Node.js: @fluent-org/logger", "forward", "js",
        _NODE % ("", ""),
        _NODE % ('const fs = require("fs");\n', ', tls: { ca: fs.readFileSync("$ca") }'),
        note="Its own time limits (500 ms for an acknowledgement) would double events whenever Kafka is slow: leave them raised.",
    ),
    Client(
        "ruby", "Ruby: fluent-logger", "forward", "ruby", _RUBY % "", _RUBY % ', tls_options: { ca: "$ca" }', note=_NO_ACKS
    ),
    Client(
        "java", "Java: fluency", "forward", "java",
        _JAVA % "",
        "// keytool -importcert -noprompt -file $ca -keystore headrace.p12 -storepass changeit\n"
        "// java -Djavax.net.ssl.trustStore=headrace.p12 -Djavax.net.ssl.trustStorePassword=changeit …\n"
        + _JAVA % "builder.setSslEnabled(true);\n",
        note="Each attempt has a chunk id of its own, so a resend lands twice.",
    ),
    Client(
        "logjam", "logjam_agent", "logjam", "ruby",
        'LogjamAgent.add_forwarder(:zmq, host: "$host:$port")\n',
        tls_note="logjam_agent speaks no CURVE, which `up --tls` asks of Logjam's clients: start the stack without --tls, and let"
        " HEADRACE_LOGJAM__ALLOW name its network.",
    ),
    Client(
        "pravega", "Pravega's Java client", "segment", "java",
        _PRAVEGA % "",
        _PRAVEGA % 'ClientConfig.builder().enableTlsToSegmentStore(true).trustStore("$ca").build()\n',
    ),
)  # fmt: skip
"""In the order in which they are listed."""

NAMED: Final[Mapping[str, Client]] = {client.name: client for client in CLIENTS}


PORTS: Final[Mapping[str, int]] = {
    "courier": 5043,
    "forward": 24224,
    "logjam": 9604,
    "lumberjack": 5044,
    "segment": 12345,
}
"""Port by protocol."""

_MORE: Final[Mapping[str, str]] = {
    "logjam": """\
  Consume your logjam-devices, too:
                HEADRACE_LOGJAM__ENDPOINTS='{"device-1": "tcp://HOST:9606"}' ./headrace up
""",
    "segment": """\
  Any client of the Streaming Service protocol. Look at segments:
                ./headrace segment ls
                ./headrace segment cat demo.shop
""",
}
_FIRST: Final[Mapping[str, Sequence[str]]] = {"forward": ("fluent-bit", "fluentd")}
"""Clients to begin with, by protocol; of the others all are few."""


def how_to(protocol: str) -> str:
    """Configurations for this machine without TLS, as the end of the demo shows them."""
    names = _FIRST.get(protocol) or [each.name for each in CLIENTS if each.protocol == protocol and each.plain]
    texts = [_indented(NAMED[name], Address("127.0.0.1", PORTS[protocol])) for name in names]
    return "\n".join([*texts, *([_MORE[protocol]] if protocol in _MORE else [])])


def _indented(client: Client, address: Address) -> str:
    head, *rest = client.text(address).splitlines()
    return "\n".join([f"  {client.name:<13} {head}", *(f"{'':<16}{line}" for line in rest)]) + "\n"


def page() -> str:
    """docs/clients.md."""
    lines = [
        "# Clients",
        "",
        "The configuration of each client, as `./headrace snippet CLIENT` prints it for the addresses of your stack. The",
        "protocols' pages say more: [Lumberjack](protocols/lumberjack.md), [Forward](protocols/forward.md),",
        "[Courier](protocols/courier.md), [Logjam](protocols/logjam.md), [segments](protocols/segment.md).",
    ]
    for client in CLIENTS:
        lines += ["", f"## {client.title}", "", f"`./headrace snippet {client.name}`"]
        lines += ["", client.note] if client.note else []
        for title, address, why in (
            ("Plain", Address("headrace.example.org", PORTS[client.protocol]), client.plain_note),
            ("TLS", Address("headrace.example.org", PORTS[client.protocol], "/etc/headrace/ca.pem"), client.tls_note),
        ):
            text = "" if why else client.text(address)
            lines += (
                ["", f"{title}: {why}"] if why else ["", f"{title}:", "", f"```{client.syntax}", text.rstrip(), "```"]
            )
    return "\n".join(lines) + "\n"


def list_clients() -> int:
    """Print the clients, with the protocol and the port that each speaks."""
    width = max(len(client.name) for client in CLIENTS)
    for client in CLIENTS:
        console.OUT.print(f"{client.name:<{width}}  {client.title} ({client.protocol}, {PORTS[client.protocol]})")
    return 0


def snippet(name: str, path: Path, host: str) -> int:
    """Print the configuration of the client `name`; what to know about it goes to standard error.

    `host`: what clients call this machine; empty: the address that the receiver listens on. Without a stack in `path`, the usual
    port of this machine. Raises `CommandError` (unknown client, no such receiver, a client that cannot speak as the stack does).
    """
    if name not in NAMED:
        raise CommandError(f"There is no client called {name}; there is: {', '.join(NAMED)}.", status=2)
    client = NAMED[name]
    state = StateFolder(path)
    record = state.read_record() if state.running() else {}
    address = _address(record, client, state, host)
    sys.stdout.write(client.text(address))
    sys.stdout.flush()
    if client.note:
        console.ERR.print(client.note, markup=False)
    if not record:
        console.ERR.print(
            f"Nothing runs on {state.path}: this is for the usual port; {command('up', state.path)} starts it."
        )
    return 0


def _address(record: dict[str, Any], client: Client, state: StateFolder, host: str) -> Address:
    if not record:
        return Address(host or "127.0.0.1", PORTS[client.protocol])
    service = record["services"].get(client.protocol)
    if service is None:
        raise CommandError(f"The stack on {state.path} runs without {client.protocol}, which {client.name} speaks.")
    listening, _, port = service["listen"].rpartition(":")
    where = socket.gethostname() if listening in _EVERYWHERE else listening
    return Address(host or where, int(port), service.get("ca") or "", service.get("keys") or "")
