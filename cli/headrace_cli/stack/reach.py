"""How to reach Kafka: the stack's own, one that is named, or the environment's; and why it cannot be reached, which Kafka's own
client says only after a minute. And whether a part of the stack is ready.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

from headrace_common.operations.settings import KafkaSettings, Settings, load
from headrace_common.operations.variables import variable

from headrace_cli.ground import CommandError
from headrace_cli.stack.state import StateFolder

CONNECT_SECONDS: Final = 2.0


NO_ANSWER: Final = "no answer"


async def not_ready(ready: str, address: str) -> str:
    """Return what ``/readyz`` at `ready` (HOST:PORT) has against a part, in one line; without `ready`, why `address` takes no
    connection. Empty if it is ready.
    """
    if not ready:
        return await unreachable(address) or ""
    writer = None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(*ready.rsplit(":", 1))
            writer.write(f"GET /readyz HTTP/1.0\r\nHost: {ready}\r\n\r\n".encode())
            head, _, body = (await reader.read()).decode(errors="replace").partition("\r\n\r\n")
        return "" if " 200 " in head.partition("\r\n")[0] else "; ".join(body.split("\n")).strip("; ") or NO_ANSWER
    except (OSError, TimeoutError):
        return NO_ANSWER
    finally:
        if writer is not None:
            with suppress(OSError):
                writer.close()


class _Environment(Settings):
    kafka: KafkaSettings = KafkaSettings()


def environments_kafka(**known: object) -> KafkaSettings:
    """Return the settings of `HEADRACE_KAFKA__…`, with those that are `known` instead. Raises `ConfigError`."""
    return load(_Environment).kafka.model_copy(update=known)


def kafka_settings(path: Path, named: str | None) -> KafkaSettings:
    """Return how to reach Kafka: at `named`, else as the stack in `path` does, else as the environment says.

    Users, passwords, TLS and topics come from `HEADRACE_KAFKA__…`; the embedded broker speaks PLAINTEXT. Raises `CommandError` if
    Kafka's address is unknown, `ConfigError` for wrong settings.
    """
    if named is not None:
        return environments_kafka(bootstrap_servers=named)
    state = StateFolder(path)
    record = state.what_runs()
    if record:
        known: dict[str, object] = {"bootstrap_servers": record["kafka"]}
        if record["embedded"]:
            known["security_protocol"] = "PLAINTEXT"
        return environments_kafka(**known)
    if variable("kafka", "bootstrap_servers") in os.environ:
        return environments_kafka()
    raise state.nothing_runs("name a Kafka with --kafka HOST:PORT")


async def unreachable(bootstrap: str) -> str | None:
    """Return why none of `bootstrap` (HOST:PORT, several with commas) takes a connection; None if one does.

    Takes a few seconds at most.
    """
    places = [item.strip().rpartition(":") for item in bootstrap.split(",")]
    found = await asyncio.gather(*(_connect(host.strip("[]"), int(port)) for host, _, port in places))
    return None if None in found else "; ".join(problem for problem in found if problem is not None)


async def _connect(host: str, port: int) -> str | None:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"{host}:{port} does not answer"
    except socket.gaierror:
        return f"{host} does not resolve"
    except OSError as error:
        return f"{host}:{port} cannot be reached ({os.strerror(error.errno) if error.errno else error})"
    writer.close()
    return None


async def check_reachable(settings: KafkaSettings) -> None:
    """Raise `CommandError` within a few seconds if no broker takes a connection: aiokafka says so only after a minute."""
    problem = await unreachable(settings.bootstrap_servers)
    if problem is not None:
        raise CommandError(f"Kafka at {settings.bootstrap_servers}: {problem}.")
