"""What one stack consists of: the broker, the topics, the receivers, the landing job, with their ports and settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from headrace_common.settings import TopicSettings, environment, own_environment, variable

from headrace_cli.broker import HOST, SEGMENT_BYTES, EmbeddedKafka
from headrace_cli.certificates import Certificates, ensure
from headrace_cli.child import Spec
from headrace_cli.errors import CommandError
from headrace_cli.ports import free_port, holder, is_taken
from headrace_cli.probes import http_probe, kafka_probe
from headrace_cli.services import (
    CONTROLLER_PORT,
    EVENTS_PARTITIONS,
    KAFKA_PORT,
    LAKE_MODULE,
    LAKE_OPS_PORT,
    SERVICES,
    Service,
)
from headrace_cli.state import STACK_VARIABLE, StateFolder
from headrace_cli.toolchain import Progress, jars, java_home

MIB: Final = 1024 * 1024
RETENTION_BYTES: Final = 256 * MIB
"""`retention.bytes` of each partition on the embedded broker, unless TOPICS__RETENTION_BYTES says otherwise."""
_KAFKA_OWN_BYTES: Final = 4 * SEGMENT_BYTES  # metadata and consumer offsets


@dataclass(frozen=True)
class Options:
    """What the user asked `up` for. `kafka`: a broker of their own; `services`: names, all if empty."""

    kafka: str | None = None
    services: tuple[str, ...] = ()
    any_port: bool = False
    host: str = HOST
    tls: bool = False


@dataclass(frozen=True)
class Endpoint:
    """What `status --json` tells of a receiver beside its process."""

    listen: str
    listeners: Mapping[str, str]
    ops: str
    hint: str
    ca: str | None = None


@dataclass
class Stack:
    """Everything that the supervisor needs to know. `broker` is None with a Kafka of the user's own."""

    state: StateFolder
    bootstrap: str
    broker: EmbeddedKafka | None
    kafka: Spec | None
    topics: tuple[Sequence[str], Mapping[str, str]]
    receivers: list[tuple[Spec, Endpoint]]
    lake: Spec
    lake_ops: str
    disk_bytes: int | None = field(default=None)


def chosen(names: Sequence[str]) -> list[Service]:
    """The services of these names, all if there are none. Raises `CommandError` for an unknown name."""
    known = {service.name: service for service in SERVICES}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise CommandError(f"There is no service called {', '.join(unknown)}; there is: {', '.join(known)}.", status=2)
    return [known[name] for name in names] if names else list(SERVICES)


def plan(state: StateFolder, options: Options, progress: Progress | None = None) -> Stack:
    """Choose ports, fetch what is missing, prepare the broker. May take minutes the first time.

    Raises `CommandError`: a port is taken, an unknown service, no Java, no jars, an unusable folder.
    """
    services = chosen(options.services)
    if options.tls and variable("tls", "cert") in os.environ:
        raise CommandError(f"{variable('tls', 'cert')} is set: leave out --tls, which makes certificates of its own.")
    ports = _Ports(options)
    kafka_port = ports.take("kafka", KAFKA_PORT, HOST) if options.kafka is None else 0
    controller_port = ports.take("kafka's controller", CONTROLLER_PORT, HOST) if options.kafka is None else 0
    rows = [
        (
            service,
            [ports.take(service.name, listener.port, options.host) for listener in service.listeners],
            ports.take(f"{service.name}'s health and metrics", service.ops_port, HOST),
        )
        for service in services
    ]
    lake_ops = ports.take("the landing job's health and metrics", LAKE_OPS_PORT, HOST)
    state.make()
    pki = ensure(state.path / "tls", options.host) if options.tls else None
    spark_jars = jars("spark", progress)
    broker = kafka = None
    if options.kafka is None:
        jars("kafka", progress)
        broker = EmbeddedKafka(state.kafka, kafka_port, controller_port)
        broker.prepare()
    bootstrap = options.kafka or f"{HOST}:{kafka_port}"
    base = _base_environment(state, bootstrap, embedded=broker is not None)
    if broker is not None:
        probe = kafka_probe(HOST, kafka_port)
        kafka = Spec("kafka", tuple(broker.command()), {**base, "LC_ALL": "C"}, state.log("kafka"), probe, grace=20)
    defaults: dict[str, object] = {"events_partitions": EVENTS_PARTITIONS}
    if broker is not None:
        defaults["retention_bytes"] = RETENTION_BYTES
    topics = {**environment("topics", **defaults), **own_environment(), **base}
    lake_environment = {
        **base,
        **environment("lake", path=state.lake, checkpoint=state.checkpoint, jars=spark_jars),
        **environment("ops", host=HOST, port=lake_ops),
        "JAVA_HOME": str(java_home()),
        "SPARK_LOCAL_DIRS": str(state.path / "run" / "spark"),
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": sys.executable,
    }
    return Stack(
        state,
        bootstrap,
        broker,
        kafka,
        (module("headrace_common.topics"), topics),
        [_receiver(service, listening, ops, options.host, state, base, pki) for service, listening, ops in rows],
        Spec("lake", module(LAKE_MODULE), lake_environment, state.log("lake"), http_probe(HOST, lake_ops)),
        f"{HOST}:{lake_ops}",
        _kafka_disk(topics) if broker is not None else None,
    )


def module(name: str) -> tuple[str, ...]:
    """The command that runs a module of ours. -P: what lies in the current folder is not imported."""
    return (sys.executable, "-P", "-m", name)


def _receiver(
    service: Service,
    listening: list[int],
    ops: int,
    host: str,
    state: StateFolder,
    base: Mapping[str, str],
    pki: Certificates | None,
) -> tuple[Spec, Endpoint]:
    variables = {**base, **environment("listen", host=host), **environment("ops", host=HOST, port=ops)}
    if pki is not None:
        variables |= environment("tls", cert=pki.server[0], key=pki.server[1])
    addresses = {}
    for listener, port in zip(service.listeners, listening, strict=True):
        variables[variable(listener.section, listener.setting)] = str(port)
        addresses[listener.name] = f"{host}:{port}"
    spec = Spec(service.name, module(service.module), variables, state.log(service.name), http_probe(HOST, ops))
    endpoint = Endpoint(addresses[service.listeners[0].name], addresses, f"{HOST}:{ops}", service.hint)
    if pki is None:
        return spec, endpoint
    escaped = str(pki.ca).replace("{", "{{").replace("}", "}}")
    return spec, replace(endpoint, hint=service.hint + service.tls_hint.replace("{ca}", escaped), ca=str(pki.ca))


def _base_environment(state: StateFolder, bootstrap: str, *, embedded: bool) -> dict[str, str]:
    """For every process of the stack. Credentials for some other Kafka must not reach the embedded one."""
    variables = environment("kafka", bootstrap_servers=bootstrap)
    if embedded:
        variables.update(environment("kafka", security_protocol="PLAINTEXT"))
    name = state.name
    assert name is not None
    variables[STACK_VARIABLE] = name
    return variables


def _kafka_disk(topics: Mapping[str, str]) -> int:
    """The most that the embedded broker's folder takes, in bytes: retention frees whole segments, now and then."""

    def value(name: str, default: int) -> int:
        return int(topics.get(variable("topics", name), default))

    partitions = value("events_partitions", EVENTS_PARTITIONS) + value(
        "quarantine_partitions", TopicSettings().quarantine_partitions
    )
    return partitions * (value("retention_bytes", RETENTION_BYTES) + 2 * SEGMENT_BYTES) + _KAFKA_OWN_BYTES


class _Ports:
    """Hands out the ports that things have by default, or free ones, or says who is in the way."""

    def __init__(self, options: Options) -> None:
        self._any = options.any_port
        self._given: set[int] = set()

    def take(self, what: str, port: int, host: str) -> int:
        if self._any:
            port = free_port(host)
            while port in self._given:
                port = free_port(host)
        elif is_taken(host, port):
            raise CommandError(f"Port {port}, {what}, is taken by {holder(port)}: stop that, or use --any-port.")
        self._given.add(port)
        return port
