"""Plan a stack: the processes of broker, topics, receivers and landing job, with their ports and settings."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace_common.operations.settings import TopicSettings, environment, own_environment
from headrace_common.operations.variables import read_bytes, variable
from headrace_common.protocol import Protocol, installed

from headrace_cli.ground import CommandError, check_known, module
from headrace_cli.machine.child import ProcessSpec
from headrace_cli.machine.jars import FetchProgress, jars
from headrace_cli.machine.java import java_home
from headrace_cli.machine.ports import free_port, holder, is_taken
from headrace_cli.stack.broker import HOST, LOCALE, SEGMENT_BYTES, Broker
from headrace_cli.stack.reach import http_probe, kafka_probe
from headrace_cli.stack.state import STACK_VARIABLE, StateFolder

if TYPE_CHECKING:  # x509 takes long to import, and the help needs it not
    from headrace_cli.stack.certificates import Certificates

SERVICES: Final = installed()
KAFKA_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
LAKE_OPS_PORT: Final = 8086
LIVE_PORT: Final = 8080
LAKE_MODULE: Final = "headrace_lake"
ACCEPT: Final = "--accept-loss"
"""The landing job's option, and that of `up`."""
LIVE_MODULE: Final = "headrace_live"
EVENTS_PARTITIONS: Final = 4
SEGMENTS_PARTITIONS: Final = 4
"""Partitions of these topics on a laptop. The defaults for clusters are in `headrace_common.operations.settings`."""


MIB: Final = 1024 * 1024
MOST_PROCESSES: Final = 32
OPS_STEP: Final = 10
"""Between the ports for health and metrics of a receiver's processes: 8082, 8092, …"""
RETENTION_BYTES: Final = 256 * MIB
"""Default of TOPICS__RETENTION_BYTES with the embedded broker: `retention.bytes` of each partition."""
_OF_SPARKS: Final = re.compile(r"(PY)?SPARK_|(HADOOP|YARN)_CONF_DIR$")
_KAFKA_OWN_BYTES: Final = 4 * SEGMENT_BYTES  # metadata and consumer offsets


@dataclass(frozen=True)
class StackOptions:
    """The options of `up`. `kafka`: the user's own broker; `services`: names of receivers, all if empty.

    `processes`: of each receiver that can share its ports. `live`: with the live page.
    `accept_loss`: the landing job notes what Kafka no longer holds, and goes on.
    """

    kafka: str | None = None
    services: tuple[str, ...] = ()
    any_port: bool = False
    host: str = HOST
    tls: bool = False
    processes: int = 1
    live: bool = True
    accept_loss: bool = False


@dataclass(frozen=True)
class ReceiverAddresses:
    """Addresses of a receiver and the hint for its users. `ca`: the authority that its TLS needs; `keys`: its CURVE keys."""

    listen: str
    listeners: Mapping[str, str]
    ops: str
    hint: str
    ca: str | None = None
    keys: str | None = None


@dataclass
class Stack:
    """The supervisor's input. `kafka` is None with the user's own, `live` without the live page.

    `notes`: decisions to report, as (name, text).
    """

    state: StateFolder
    bootstrap: str
    kafka: ProcessSpec | None
    topics: tuple[Sequence[str], Mapping[str, str]]
    receivers: list[tuple[ProcessSpec, ReceiverAddresses]]
    lake: ProcessSpec
    lake_ops: str
    disk_bytes: int | None = field(default=None)
    live: ProcessSpec | None = None
    live_url: str = ""
    notes: list[tuple[str, str]] = field(default_factory=list)


def select_receivers(names: Sequence[str]) -> list[Protocol[Any]]:
    """Return the receivers called `names`, or all if it is empty. Raises `CommandError` for an unknown name."""
    known = {service.name: service for service in SERVICES}
    check_known("--services", names, known)
    return [known[name] for name in names] if names else list(SERVICES)


def plan(state: StateFolder, options: StackOptions, progress: FetchProgress | None = None) -> Stack:
    """Choose ports, fetch missing jars and prepare the broker. The first call may block for minutes.

    Raises `CommandError` (a port in use, an unknown service, no Java, no jars, an unusable folder).
    """
    services = select_receivers(options.services)
    if options.tls and variable("tls", "cert") in os.environ:
        raise CommandError(f"{variable('tls', 'cert')} is set: leave out --tls, which uses certificates of its own.")
    ports = _PortAllocator(options, state.read_ports())
    kafka_port = ports.take("kafka", KAFKA_PORT, HOST) if options.kafka is None else 0
    controller_port = ports.take("kafka's controller", CONTROLLER_PORT, HOST) if options.kafka is None else 0
    assigned = [
        (
            service,
            [ports.take(service.name, listener.port, options.host) for listener in service.listeners],
            [
                ports.take(f"{name}'s health and metrics", service.ops_port + number * OPS_STEP, HOST)
                for number, name in enumerate(_names(service, options.processes))
            ],
        )
        for service in services
    ]
    lake_ops = ports.take("the landing job's health and metrics", LAKE_OPS_PORT, HOST)
    live_port, notes = ports.take_live() if options.live else (0, [])
    state.make()
    if options.any_port:
        state.write_ports(ports.chosen)
    certificates = _certificates(state, options.host) if options.tls else None
    spark_jars = jars("spark", progress)
    broker = kafka = None
    if options.kafka is None:
        jars("kafka", progress)
        broker = Broker(state.kafka, kafka_port, controller_port)
        broker.prepare()
    bootstrap = options.kafka or f"{HOST}:{kafka_port}"
    base = base_environment(state, bootstrap, embedded=broker is not None)
    if broker is not None:
        probe = kafka_probe(HOST, kafka_port, broker.cluster)
        kafka = ProcessSpec("kafka", tuple(broker.command()), {**base, **LOCALE}, state.log("kafka"), probe, grace=20)
    defaults: dict[str, object] = {"events_partitions": EVENTS_PARTITIONS, "segments_partitions": SEGMENTS_PARTITIONS}
    if broker is not None:
        defaults["retention_bytes"] = RETENTION_BYTES
    topics = {**environment("topics", **defaults), **own_environment(), **base}
    for_lake = {**lake_environment(state, base, spark_jars), **environment("ops", host=HOST, port=lake_ops)}
    return Stack(
        state,
        bootstrap,
        kafka,
        (module("headrace_common.topics"), topics),
        [
            _receiver(replace(service, name=name), listening, ops[number], options.host, state, own, certificates)
            for service, listening, ops in assigned
            for own in [{**base, **environment("listen", reuse_port=True)} if len(ops) > 1 else base]
            for number, name in enumerate(_names(service, options.processes))
        ],
        ProcessSpec(
            "lake",
            _lake_command(options),
            for_lake,
            state.log("lake"),
            http_probe(HOST, lake_ops),
            without=of_another_spark(),
        ),
        f"{HOST}:{lake_ops}",
        _kafka_disk_bytes(topics) if broker is not None else None,
        _live(state, live_port, base) if live_port else None,
        f"http://{HOST}:{live_port}/" if live_port else "",
        notes,
    )


def _lake_command(options: StackOptions) -> tuple[str, ...]:
    return (*module(LAKE_MODULE), *([ACCEPT] if options.accept_loss else []))


def _live(state: StateFolder, port: int, base: Mapping[str, str]) -> ProcessSpec:
    command = (*module(LIVE_MODULE), "live", "--state", str(state.path), "--host", HOST, "--port", str(port))
    group = os.environ.get(variable("lake", "group"))
    command += ("--group", group) if group else ()
    return ProcessSpec("live", command, base, state.log("live"), http_probe(HOST, port), grace=10)


def _names(service: Protocol[Any], processes: int) -> list[str]:
    """Return the names of its processes: forward, forward-2, forward-3."""
    count = processes if service.shares else 1
    return [service.name, *(f"{service.name}-{number}" for number in range(2, count + 1))]


def check_processes(processes: int) -> None:
    """Raise `CommandError` for an impossible number of processes."""
    if not 1 <= processes <= MOST_PROCESSES:
        raise CommandError(f"--processes {processes}: a receiver has 1 to {MOST_PROCESSES} processes.", status=2)


def _receiver(
    service: Protocol[Any],
    listening: list[int],
    ops: int,
    host: str,
    state: StateFolder,
    base: Mapping[str, str],
    certificates: Certificates | None,
) -> tuple[ProcessSpec, ReceiverAddresses]:
    variables = {**base, **environment("listen", host=host), **environment("ops", host=HOST, port=ops)}
    without: tuple[str, ...] = ()
    if certificates is not None and service.curve:
        without = (variable("tls", "client_ca"), variable("tls", "minimum"))  # of the receivers that speak TLS
        variables |= _curve_environment(service, certificates.folder)
    elif certificates is not None:
        variables |= environment("tls", cert=certificates.server[0], key=certificates.server[1])
    addresses = {}
    for listener, port in zip(service.listeners, listening, strict=True):
        variables[variable(listener.section, listener.setting)] = str(port)
        addresses[listener.name] = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    probe = http_probe(HOST, ops)
    spec = ProcessSpec(service.name, module(service.module), variables, state.log(service.name), probe, without=without)
    endpoint = ReceiverAddresses(
        addresses[service.listeners[0].name], addresses, f"{HOST}:{ops}", service.hint.replace("{transport}", "tcp")
    )
    if certificates is None:
        return spec, endpoint
    hint = service.hint.replace("{transport}", "tls") + service.tls_hint
    for name, path in (("{ca}", certificates.ca), ("{keys}", certificates.folder)):
        hint = hint.replace(name, str(path).replace("{", "{{").replace("}", "}}"))
    if service.curve:
        return spec, replace(endpoint, hint=hint, keys=str(certificates.folder))
    return spec, replace(endpoint, hint=hint, ca=str(certificates.ca))


def _certificates(state: StateFolder, host: str) -> Certificates:
    from headrace_cli.stack.certificates import ensure

    return ensure(state.path / "tls", host)


def _curve_environment(service: Protocol[Any], folder: Path) -> dict[str, str]:
    """Return the settings with which a receiver speaks CURVE with the stack's own client."""
    from headrace_cli.stack.certificates import CLIENT, ensure_curve

    keys = ensure_curve(folder)
    clients = json.dumps({CLIENT: keys.client[0].read_text().strip()})
    return {
        **environment(service.name, curve_clients=clients),
        f"{variable(service.name, 'curve_secret_key')}_FILE": str(keys.server[1]),
    }


def lake_environment(state: StateFolder, base: Mapping[str, str], spark_jars: Path | None = None) -> dict[str, str]:
    """Return the variables of the landing job and its commands. `spark_jars`: None fetches them. Raises `CommandError`."""
    scratch = str(state.path / "run" / "spark")
    return {
        **base,
        **LOCALE,
        **environment("lake", path=state.lake, checkpoint=state.checkpoint, jars=spark_jars or jars("spark")),
        "JAVA_HOME": str(java_home()),
        **({} if "," in scratch else {"TMPDIR": scratch}),  # to Spark, a comma begins another folder
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": sys.executable,
    }


def of_another_spark() -> tuple[str, ...]:
    """Return the variables of this process that lead to a Spark, or its configuration, that is not the stack's."""
    return tuple(filter(_OF_SPARKS.match, os.environ))


def base_environment(state: StateFolder, bootstrap: str, *, embedded: bool) -> dict[str, str]:
    """Return the variables for every process of the stack. The embedded Kafka always speaks PLAINTEXT."""
    variables = environment("kafka", bootstrap_servers=bootstrap)
    if embedded:
        variables.update(environment("kafka", security_protocol="PLAINTEXT"))
    name = state.name
    assert name is not None
    variables[STACK_VARIABLE] = name
    return variables


def _kafka_disk_bytes(topics: Mapping[str, str]) -> int:
    """Return the most bytes that the embedded broker's folder takes: retention deletes whole files, and with a delay.

    Without the topics of the segment service, from which Kafka deletes nothing.
    """

    def value(name: str, default: int) -> int:
        return int(read_bytes(topics.get(variable("topics", name), default)))

    partitions = value("events_partitions", EVENTS_PARTITIONS) + value(
        "quarantine_partitions", TopicSettings().quarantine_partitions
    )
    return partitions * (value("retention_bytes", RETENTION_BYTES) + 2 * SEGMENT_BYTES) + _KAFKA_OWN_BYTES


class _PortAllocator:
    """Allocates default ports or free ones. For a port in use it raises `CommandError`, with the process that holds it.

    `before`: the free ones that an earlier start chose, by purpose: they are taken again while they are free.
    """

    def __init__(self, options: StackOptions, before: Mapping[str, int] | None = None) -> None:
        self._any = options.any_port
        self._before = before or {}
        self._given: dict[int, str] = {}
        self.chosen: dict[str, int] = {}

    def take(self, what: str, port: int, host: str) -> int:
        if self._any:
            name = f"{what} {port}"
            port = self._free(host, self._before.get(name, 0))
            self.chosen[name] = port
        elif port in self._given:
            raise CommandError(
                f"Port {port} is wanted by {self._given[port]} and {what}: leave one out (--services), or use --any-port."
            )
        elif is_taken(host, port):
            raise CommandError(f"Port {port}, {what}, is taken by {holder(port)}: stop that, or use --any-port.")
        self._given[port] = what
        return port

    def take_live(self) -> tuple[int, list[tuple[str, str]]]:
        """Return the live page's port: the usual one, else a free one, and notes about it.

        The port is 0 if the page's package is not installed.
        """
        if find_spec(LIVE_MODULE) is None:
            return 0, [("live", "there is no live page: headrace-live is not installed")]
        if self._any or not is_taken(HOST, LIVE_PORT):
            return self.take("the live page", LIVE_PORT, HOST), []
        port = self._free(HOST)
        self._given[port] = "the live page"
        return port, [("live", f"port {LIVE_PORT} is taken by {holder(LIVE_PORT)}: the live page takes another")]

    def _free(self, host: str, wanted: int = 0) -> int:
        port = free_port(host, wanted)
        while port in self._given:  # where `free_port` cannot hold what it has returned
            port = free_port(host)
        return port
