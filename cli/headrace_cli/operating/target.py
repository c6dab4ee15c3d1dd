"""Which Kafka a verb talks to: the stack's own, one that is named, or the environment's."""

from __future__ import annotations

import os
from pathlib import Path

from headrace_common.operations.settings import KafkaSettings, Settings, load
from headrace_common.operations.variables import variable

from headrace_cli.ground import CommandError
from headrace_cli.stack.reach import unreachable
from headrace_cli.stack.state import StateFolder


class _Environment(Settings):
    kafka: KafkaSettings = KafkaSettings()


def kafka_settings(path: Path, named: str | None) -> KafkaSettings:
    """Return how to reach Kafka: at `named`, else as the stack in `path` does, else as the environment says.

    Users, passwords, TLS and topics come from `HEADRACE_KAFKA__…`; the embedded broker speaks PLAINTEXT. Raises `CommandError`
    if nobody says where Kafka is, `ConfigError` for wrong settings.
    """
    if named is not None:
        return load(_Environment).kafka.model_copy(update={"bootstrap_servers": named})
    state = StateFolder(path)
    record = state.what_runs()
    if record:
        known: dict[str, object] = {"bootstrap_servers": record["kafka"]}
        if record["kafka_child"]:
            known["security_protocol"] = "PLAINTEXT"
        return load(_Environment).kafka.model_copy(update=known)
    if variable("kafka", "bootstrap_servers") in os.environ:
        return load(_Environment).kafka
    raise state.nothing_runs("name a Kafka with --kafka HOST:PORT")


async def check_reachable(settings: KafkaSettings) -> None:
    """Raise `CommandError` within a few seconds if no broker takes a connection: aiokafka says so only after a minute."""
    problem = await unreachable(settings.bootstrap_servers)
    if problem is not None:
        raise CommandError(f"Kafka at {settings.bootstrap_servers}: {problem}.")
