"""Plan a stack: the processes of broker, topics, receivers and landing job, with their ports and settings."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from headrace_common.operations.settings import LimitSettings, Settings, environment, load, own_environment
from headrace_common.operations.variables import variable
from headrace_common.protocol import Protocol, installed

from headrace_cli.ground import CommandError, check_known, module
from headrace_cli.machine.jars import jars
from headrace_cli.machine.java import java_home
from headrace_cli.machine.ports import free_port
from headrace_cli.stack.broker import HOST, LOCALE, Broker
from headrace_cli.stack.state import StateFolder
from headrace_cli.stack.supervisor import Part, Stack

SERVICES: Final = installed()
KAFKA_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
LAKE_OPS_PORT: Final = 8086
LIVE_PORT: Final = 8080
ACCEPT: Final = "--accept-loss"
"""The landing job's option, and that of `up`."""
STOP_SECONDS: Final = 15.0
"""Seconds that a receiver may take to stop after LIMITS__DRAIN_TIME: its listeners and the producer end, on a busy machine."""
LIVE_MODULE: Final = "headrace_live"
EVENTS_PARTITIONS: Final = 4
"""Partitions of the events topic on a laptop. The default for clusters is in `headrace_common.operations.settings`."""
RETENTION_BYTES: Final = 256 * 1024 * 1024
"""Default of TOPICS__RETENTION_BYTES with the embedded broker: `retention.bytes` of each partition."""
_SMALL: Final = "-XX:MaxNewSize=64m"
"""What a batch leaves fills all that young objects may have, by default a quarter of the heap, before it is collected."""
_OF_SPARKS: Final = re.compile(r"(PY)?SPARK_|(HADOOP|YARN)_CONF_DIR$")


@dataclass(frozen=True)
class StackOptions:
    """The options of `up`. `kafka`: the user's own broker; `services`: names of receivers, all if empty.

    `live`: with the live page. `accept_loss`: the landing job notes what Kafka no longer holds, and goes on.
    """

    kafka: str | None = None
    services: tuple[str, ...] = ()
    any_port: bool = False
    host: str = HOST
    live: bool = True
    accept_loss: bool = False


class _Draining(Settings):
    limits: LimitSettings = LimitSettings()


def select_receivers(names: Sequence[str]) -> list[Protocol[Any]]:
    """Return the receivers called `names`, or all if it is empty. Raises `CommandError` for an unknown name."""
    known = {service.name: service for service in SERVICES}
    check_known("--services", names, known)
    return [known[name] for name in names] if names else list(SERVICES)


def plan(state: StateFolder, options: StackOptions) -> Stack:
    """Choose ports, fetch missing jars and prepare the broker. The first call may block for minutes.

    Raises `CommandError` (a port in use, an unknown service, no jars, an unusable folder).
    """
    ports, embedded = _Ports(options.any_port), options.kafka is None
    kafka_port = ports.take("kafka", KAFKA_PORT, HOST) if embedded else 0
    controller_port = ports.take("kafka's controller", CONTROLLER_PORT, HOST) if embedded else 0
    bootstrap = options.kafka or f"{HOST}:{kafka_port}"
    base = base_environment(bootstrap, embedded=embedded)
    parts = [_receiver(service, ports, options.host, state, base) for service in select_receivers(options.services)]
    lake_ops = ports.take("the landing job's health and metrics", LAKE_OPS_PORT, HOST)
    live = _live(state, 0 if options.any_port else LIVE_PORT, base) if options.live else []
    spark_jars = jars("spark")
    kafka = None
    if embedded:
        jars("kafka")
        broker = Broker(state.kafka, kafka_port, controller_port)
        broker.prepare()
        kafka = Part("kafka", tuple(broker.command()), LOCALE, state.log("kafka"), bootstrap)
    defaults = {"events_partitions": EVENTS_PARTITIONS} | ({"retention_bytes": RETENTION_BYTES} if embedded else {})
    topics = {**environment("topics", **defaults), **own_environment(), **base}
    lake = Part(
        "lake",
        (*module("headrace_lake"), *([ACCEPT] if options.accept_loss else [])),
        {**lake_environment(state, base, spark_jars), **environment("ops", host=HOST, port=lake_ops)},
        state.log("lake"),
        str(state.lake),
        ops=f"{HOST}:{lake_ops}",
        ready=f"{HOST}:{lake_ops}",
        start="Spark starts, which takes half a minute",
        early=True,
        without=of_another_spark(),
    )
    make_topics = Part("topics", module("headrace_common.topics"), topics, state.log("topics"))
    return Stack(state, bootstrap, kafka, make_topics, [*parts, lake, *live])


def _receiver(service: Protocol[Any], ports: _Ports, host: str, state: StateFolder, base: Mapping[str, str]) -> Part:
    variables, listeners = {**base, **environment("listen", host=host)}, {}
    for listener in service.listeners:
        port = ports.take(service.name, listener.port, host)
        variables[variable(listener.section, listener.setting)] = str(port)
        listeners[listener.name] = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    ops = ports.take(f"{service.name}'s health and metrics", service.ops_port, HOST)
    return Part(
        service.name,
        (*module("headrace_common"), service.name),
        variables | environment("ops", host=HOST, port=ops),
        state.log(service.name),
        listeners[service.listeners[0].name],
        listeners,
        ops=f"{HOST}:{ops}",
        ready=f"{HOST}:{ops}",
        grace=load(_Draining).limits.drain_time + STOP_SECONDS,
    )


def _live(state: StateFolder, wanted: int, base: Mapping[str, str]) -> list[Part]:
    """Return the live page, on the port `wanted` if that is free; none if its package is missing."""
    if find_spec(LIVE_MODULE) is None:
        return []
    port = free_port(HOST, wanted)
    command = (*module("headrace_cli"), "live", "--state", str(state.path), "--host", HOST, "--port", str(port))
    if group := os.environ.get(variable("lake", "group")):
        command += ("--group", group)
    return [Part("live", command, base, state.log("live"), f"http://{HOST}:{port}/", ready=f"{HOST}:{port}", grace=10)]


def lake_environment(state: StateFolder, base: Mapping[str, str], spark_jars: Path | None = None) -> dict[str, str]:
    """Return the variables of the landing job and its commands. `spark_jars`: None fetches them. Raises `CommandError`.

    If the user does not say how long records may wait to land, they do not: somebody looks at them.
    """
    delay, trigger = variable("lake", "delay"), variable("lake", "trigger")
    scratch = str(state.path / "run" / "spark")
    return {
        **base,
        **LOCALE,
        **environment("lake", path=state.lake, checkpoint=state.checkpoint, jars=spark_jars or jars("spark")),
        delay: os.environ.get(delay, "0"),
        trigger: os.environ.get(trigger, "5"),
        "JAVA_HOME": str(java_home()),
        "JDK_JAVA_OPTIONS": f"{_SMALL} {os.environ.get('JDK_JAVA_OPTIONS', '')}".rstrip(),
        **({} if "," in scratch else {"TMPDIR": scratch}),  # to Spark, a comma begins another folder
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": sys.executable,
    }


def of_another_spark() -> tuple[str, ...]:
    """Return the variables of this process that lead to a Spark, or its configuration, that is not the stack's."""
    return tuple(filter(_OF_SPARKS.match, os.environ))


def base_environment(bootstrap: str, *, embedded: bool) -> dict[str, str]:
    """Return the variables for every process of the stack. The embedded Kafka always speaks PLAINTEXT."""
    variables = environment("kafka", bootstrap_servers=bootstrap)
    return variables | environment("kafka", security_protocol="PLAINTEXT") if embedded else variables


class _Ports:
    """Gives the usual ports, or free ones. For a port in use it raises `CommandError`."""

    def __init__(self, any_port: bool) -> None:
        self._any = any_port
        self._given: dict[int, str] = {}

    def take(self, what: str, port: int, host: str) -> int:
        if self._any:
            port = free_port(host)
        elif port in self._given:
            raise CommandError(
                f"Port {port} is wanted by {self._given[port]} and {what}: leave one out (--services), or use --any-port."
            )
        elif free_port(host, port) != port:
            raise CommandError(f"Port {port}, {what}, is taken: stop what listens there, or use --any-port.")
        self._given[port] = what
        return port
