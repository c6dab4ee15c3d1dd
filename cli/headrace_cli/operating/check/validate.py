"""``validate``: settings, certificates, limits, Kafka and the topics, before anything starts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace_common.kafka.client import Topic, describe
from headrace_common.operations.errors import EXIT_CONFIG, ConfigError, HeadraceError
from headrace_common.operations.settings import (
    KafkaSettings,
    ServiceSettings,
    Settings,
    TopicsProcessSettings,
    load,
)
from headrace_common.operations.variables import misspelt

from headrace_cli.ground import CommandError
from headrace_cli.operating.check import limits
from headrace_cli.operating.check.limits import check_certificates
from headrace_cli.operating.check.parts import NAMES, Finding, Verdict, settings_class, show
from headrace_cli.stack.reach import check_reachable


@dataclass(frozen=True)
class ValidateOptions:
    """The options of `validate`. `parts`: all if empty. `offline`: do not ask Kafka. `strict`: a doubt counts, too."""

    parts: Sequence[str] = ()
    config: Path | None = None
    offline: bool = False
    strict: bool = False
    as_json: bool = False


def validate(options: ValidateOptions) -> int:
    """Check and print everything. Return 0, or 78 if something is wrong. Raises `CommandError` for an unknown part."""
    unknown = [name for name in options.parts if name not in NAMES]
    if unknown:
        raise CommandError(f"There is no part called {unknown[0]}; there is: {', '.join(NAMES)}.", status=2)
    findings = list(_all(options))
    bad = [found for found in findings if found.verdict is Verdict.WRONG or (options.strict and found.bad)]
    doubts = sum(found.verdict is Verdict.DOUBT for found in findings)
    verdict = f"{len(bad)} to mend" if bad else "valid" + (f", {doubts} in doubt" if doubts else "")
    show(findings, verdict, fine=not bad, as_json=options.as_json)
    return EXIT_CONFIG if bad else 0


def _all(options: ValidateOptions) -> Iterator[Finding]:
    loaded: dict[str, Settings] = {}
    said: set[str] = set()
    for part in options.parts or NAMES:
        try:
            loaded[part] = load(settings_class(part), options.config)
        except ConfigError as error:
            for line in str(error).splitlines():
                if line not in said:  # what parts share is wrong in each of them
                    yield Finding("settings", Verdict.WRONG, line, "docs/settings.md says what it may be")
                said.add(line)
    refused = {line.partition(":")[0] for line in said}
    for sentence in misspelt(os.environ):
        if sentence.partition(":")[0] not in refused:
            yield Finding("settings", Verdict.DOUBT, f"{sentence}: it is ignored", "correct its name, or leave it out")
    if loaded:
        yield Finding("settings", Verdict.FINE, f"of {', '.join(loaded)}")
    yield from _of_machine(loaded.values())
    if options.offline:
        yield Finding("kafka", Verdict.UNKNOWN, "not asked")
    elif loaded:
        yield from _of_kafka(loaded)


def _of_machine(loaded: Iterable[Settings]) -> list[Finding]:
    """Return the findings about files and limits, each once: parts share most of them."""
    found: dict[Finding, None] = {}
    for settings in loaded:
        if isinstance(settings, ServiceSettings):
            each = [
                *check_certificates(settings.tls),
                *limits.of_machine(settings.limits),
                *limits.of_kafka(settings.kafka),
            ]
            found |= dict.fromkeys(each)
    return list(found)


def _of_kafka(loaded: dict[str, Settings]) -> Iterator[Finding]:
    kafka = next(_kafka(settings) for settings in loaded.values())
    also = (kafka.segments_topic, kafka.snapshots_topic) if "segment" in loaded else ()
    try:
        topics = asyncio.run(_ask(kafka, also))
    except HeadraceError as error:
        mend = (
            "python -m headrace_common.topics makes it"
            if "is missing" in str(error)
            else "check KAFKA__… and the brokers"
        )
        yield Finding("kafka", Verdict.WRONG, str(error), mend)
        return
    yield Finding(
        "kafka", Verdict.FINE, f"{kafka.bootstrap_servers} answers; {', '.join(t.name for t in topics)} exist"
    )
    unread = [topic.name for topic in topics if not topic.configuration]
    if unread:
        yield Finding(
            "kafka",
            Verdict.DOUBT,
            f"the settings of {', '.join(unread)} may not be read, so nothing can say whether they keep the promise",
            "allow DESCRIBE_CONFIGS on the topics",
        )
    yield from _of_topics(loaded, topics)


def _of_topics(loaded: dict[str, Settings], topics: Sequence[Topic]) -> Iterator[Finding]:
    receivers = [settings for settings in loaded.values() if isinstance(settings, ServiceSettings)]
    largest = max((settings.limits for settings in receivers), key=lambda each: each.event_bytes, default=None)
    found: list[Finding] = []
    for number, topic in enumerate(topics):
        found += limits.of_topic(topic, largest if number < 2 else None)
    process = loaded.get("topics")
    if isinstance(process, TopicsProcessSettings):
        found += limits.of_plans(process.kafka, process.topics, {topic.name: topic for topic in topics})
    yield from found or [Finding("topics", Verdict.FINE, "keep the promise, and hold the largest event")]


async def _ask(kafka: KafkaSettings, also: Sequence[str]) -> list[Topic]:
    await check_reachable(kafka)
    return await describe(kafka, also)


def _kafka(settings: Settings) -> KafkaSettings:
    found = dict(settings)["kafka"]  # each part's settings have it; their base class has not
    assert isinstance(found, KafkaSettings)
    return found
