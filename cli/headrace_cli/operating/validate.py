"""``validate``: settings, certificates, limits, Kafka and the topics, before anything starts."""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID
from headrace_common.connection.files import OWN_FILES
from headrace_common.kafka.client import Topic, describe
from headrace_common.operations.errors import EXIT_CONFIG, ConfigError, HeadraceError
from headrace_common.operations.settings import (
    KafkaSettings,
    LimitSettings,
    ServiceSettings,
    Settings,
    TlsSettings,
    TopicSettings,
    TopicsProcessSettings,
    load,
)
from headrace_common.operations.variables import misspelt
from headrace_common.topics import changes, plans

from headrace_cli.ground import check_known
from headrace_cli.machine.memory import usable_memory
from headrace_cli.operating.parts import NAMES, CheckResult, Severity, as_document, settings_class, show
from headrace_cli.stack.reach import check_reachable
from headrace_cli.verbs import console
from headrace_cli.verbs.console import format_size
from headrace_cli.verbs.options import examples

RECORD_BYTES: Final = 64 * 1024
"""Room for an event's headers in its batch, and for the batch's own."""

SOON: Final = timedelta(days=30)
CHECK: Final = "certificate"

_limits_doubt = partial(CheckResult, "limits", Severity.DOUBT)
_topics_wrong = partial(CheckResult, "topics", Severity.WRONG)
_topics_doubt = partial(CheckResult, "topics", Severity.DOUBT)


def of_machine(limits: LimitSettings) -> Iterator[CheckResult]:
    """Yield limits that contradict the files and the memory that a process may use here. Only of use where the part runs."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if files != resource.RLIM_INFINITY and files < limits.connections + OWN_FILES:
        yield _limits_doubt(
            f"LIMITS__CONNECTIONS ({limits.connections:,}) is more than this process may open files ({files:,})",
            "raise the limit of open files (ulimit -n, LimitNOFILE=), or lower LIMITS__CONNECTIONS",
        )
    memory = usable_memory()
    if limits.process_budget > memory // 2:
        yield _limits_doubt(
            f"LIMITS__PROCESS_BUDGET ({format_size(limits.process_budget)}) is more than half of the memory that a"
            f" process may use here ({format_size(memory)})",
            "lower it, or allow more memory",
        )


def of_kafka(kafka: KafkaSettings) -> Iterator[CheckResult]:
    """Yield times that contradict one another."""
    if kafka.ack_deadline < kafka.request_timeout:
        yield _limits_doubt(
            f"KAFKA__ACK_DEADLINE ({kafka.ack_deadline:g} s) is below KAFKA__REQUEST_TIMEOUT ({kafka.request_timeout:g} s):"
            " one request without an answer already costs the connection",
            "raise the deadline, or lower the time-out",
        )


def of_topic(topic: Topic, limits: LimitSettings | None) -> Iterator[CheckResult]:
    """Yield the findings on a topic: its settings for the promise, and its room for the largest event."""
    for what in topic.weak:
        yield _topics_wrong(
            f"{topic.name}: {what}",
            "python -m headrace_common.topics sets what can be set; replicas are moved with kafka-reassign-partitions",
        )
    if limits is not None and topic.max_message_bytes < limits.event_bytes + RECORD_BYTES:
        yield _topics_wrong(
            f"{topic.name}: max.message.bytes ({topic.max_message_bytes:,}) does not hold an event of LIMITS__EVENT_BYTES"
            f" ({limits.event_bytes:,}), which Kafka would refuse",
            "raise TOPICS__MAX_MESSAGE_BYTES and run python -m headrace_common.topics, or lower LIMITS__EVENT_BYTES",
        )


def of_plans(kafka: KafkaSettings, topics: TopicSettings, found: Mapping[str, Topic]) -> Iterator[CheckResult]:
    """Yield the changes that `python -m headrace_common.topics` would make."""
    for plan in plans(kafka, topics):
        topic = found.get(plan.name)
        if topic is None:
            continue
        changed = changes(plan.configuration, topic.configuration) if topic.configuration else {}
        listed = [f"{name} is {topic.configuration[name]}, wanted {value}" for name, value in changed.items()]
        if topic.partitions < plan.partitions and plan.grows:
            listed.append(f"{topic.partitions} partitions, wanted {plan.partitions}")
        if listed:
            mend = "python -m headrace_common.topics sets it"
            yield _topics_doubt(f"{plan.name}: {'; '.join(listed)}", mend)
        if topic.partitions != plan.partitions and not plan.grows:
            yield _topics_doubt(
                f"{plan.name}: {topic.partitions} partitions, TOPICS__SEGMENTS_PARTITIONS is {plan.partitions}",
                "they never change: set TOPICS__SEGMENTS_PARTITIONS to the topic's number",
            )


def check_certificates(settings: TlsSettings, now: datetime | None = None) -> list[CheckResult]:
    """Return faults and doubts; without any, one line about the certificate. Reads the files; raises nothing."""
    if settings.cert is None or settings.key is None:
        return []
    moment = now or datetime.now(UTC)
    try:
        chain = x509.load_pem_x509_certificates(settings.cert.read_bytes())
    except (OSError, ValueError) as error:
        return [
            _wrong("TLS__CERT", settings.cert, f"cannot be read: {_first(error)}", "name a PEM file that it may read")
        ]
    found = [
        *_pair(settings.cert, settings.key),
        *_dates("TLS__CERT", settings.cert, chain, moment),
        *_names(settings.cert, chain[0]),
        *_use(settings.cert, chain[0]),
        *_order(settings.cert, chain),
        *(_authority(settings.client_ca, moment) if settings.client_ca is not None else ()),
    ]
    if found:
        return found
    names = ", ".join(_subject_names(chain[0]))
    until = chain[0].not_valid_after_utc.date().isoformat()
    return [CheckResult(CHECK, Severity.FINE, f"{settings.cert}: for {names}, until {until}")]


def _wrong(setting: str, path: Path, what: str, mend: str, verdict: Severity = Severity.WRONG) -> CheckResult:
    return CheckResult(CHECK, verdict, f"{setting} {path} {what}", mend)


def _first(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _no_password() -> str:
    raise ValueError("it is encrypted")


def _pair(cert: Path, key: Path) -> Iterator[CheckResult]:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=_no_password)
    except (OSError, ssl.SSLError, ValueError) as error:
        mismatch = "KEY_VALUES_MISMATCH" in str(error)
        what = f"is not the key of TLS__CERT {cert}" if mismatch else f"cannot be used: {_first(error)}"
        yield _wrong("TLS__KEY", key, what, "give the certificate and the key that were made together, unencrypted")


def _dates(setting: str, path: Path, chain: Sequence[x509.Certificate], now: datetime) -> Iterator[CheckResult]:
    for number, certificate in enumerate(chain):
        which = "" if len(chain) == 1 else f" (certificate {number + 1} of {len(chain)} in it)"
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if now >= ends:
            yield _wrong(
                setting, path, f"has expired on {ends.date()}{which}", "replace the file; no restart is needed"
            )
        elif now < begins:
            yield _wrong(
                setting, path, f"is not valid before {begins:%Y-%m-%d %H:%M} UTC{which}", "check this machine's clock"
            )
        elif ends - now < SOON:
            days = (ends - now).days
            yield _wrong(setting, path, f"expires in {days} days{which}", "replace the file in time", Severity.DOUBT)


def _subject_names(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return [str(name.value) for name in names if isinstance(name, x509.DNSName | x509.IPAddress)]


def _names(path: Path, certificate: x509.Certificate) -> Iterator[CheckResult]:
    if not _subject_names(certificate):
        yield _wrong(
            "TLS__CERT",
            path,
            "names no host",
            "make one whose subject alternative names are what clients call this receiver",
        )


def _use(path: Path, certificate: x509.Certificate) -> Iterator[CheckResult]:
    try:
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (x509.ExtensionNotFound, ValueError):
        return
    if ExtendedKeyUsageOID.SERVER_AUTH not in uses and ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE not in uses:
        yield _wrong("TLS__CERT", path, "is not for servers", "make one with the extended key usage serverAuth")


def _order(path: Path, chain: Sequence[x509.Certificate]) -> Iterator[CheckResult]:
    for lower, upper in itertools.pairwise(chain):
        try:
            lower.verify_directly_issued_by(upper)
        except (ValueError, TypeError, InvalidSignature):
            what = f"is no chain: {lower.subject.rfc4514_string()} is not signed by the next, {upper.subject.rfc4514_string()}"
            yield _wrong("TLS__CERT", path, what, "put the server's certificate first, then each one's issuer")
            return


def _authority(path: Path, now: datetime) -> Iterator[CheckResult]:
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        yield _wrong("TLS__CLIENT_CA", path, f"cannot be read: {_first(error)}", "name a PEM file that it may read")
        return
    yield from _dates("TLS__CLIENT_CA", path, found, now)
    for certificate in found:
        try:
            signs = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        except (x509.ExtensionNotFound, ValueError):
            signs = False
        if not signs:
            what = f"holds {certificate.subject.rfc4514_string()}, which is no authority"
            yield _wrong("TLS__CLIENT_CA", path, what, "name the certificate that signed those of the clients")


app = typer.Typer()


@app.command(
    epilog=examples(
        "./headrace validate",
        "./headrace validate forward lake --config headrace.yaml",
        "./headrace validate --offline --strict --json",
    )
)
def validate(
    parts: Annotated[
        list[str] | None, typer.Argument(metavar="[PART]...", help="forward, lake, topics, …; default: all parts.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML file with settings; the environment overrides it.")
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask Kafka.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="A doubt counts as wrong, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> int:
    """Check settings, certificates, limits, Kafka and its topics before anything starts. Exit status 78 if one is wrong."""
    check_known("part", parts or (), NAMES)
    findings = list(_all(parts or NAMES, config, offline=offline))
    bad = [found for found in findings if found.verdict is Severity.WRONG or (strict and found.bad)]
    doubts = sum(found.verdict is Severity.DOUBT for found in findings)
    verdict = f"{len(bad)} to mend" if bad else "valid" + (f", {doubts} in doubt" if doubts else "")
    if as_json:
        print(as_document(findings, verdict, fine=not bad))
    else:
        for found in findings:
            show(found)
        console.OUT.print(verdict, style="bold red" if bad else "bold green", markup=False)
    return EXIT_CONFIG if bad else 0


def _all(parts: Sequence[str], config: Path | None, *, offline: bool) -> Iterator[CheckResult]:
    loaded: dict[str, Settings] = {}
    said: set[str] = set()
    for part in parts:
        try:
            loaded[part] = load(settings_class(part), config)
        except ConfigError as error:
            for line in str(error).splitlines():
                if line not in said:  # what parts share is wrong in each of them
                    yield CheckResult("settings", Severity.WRONG, line, "docs/settings.md has the allowed values")
                said.add(line)
    refused = {line.partition(":")[0] for line in said}
    for sentence in misspelt(os.environ):
        if sentence.partition(":")[0] not in refused:
            yield CheckResult(
                "settings", Severity.DOUBT, f"{sentence}: it is ignored", "correct its name, or leave it out"
            )
    if loaded:
        yield CheckResult("settings", Severity.FINE, f"of {', '.join(loaded)}")
    yield from _of_machine(loaded.values())
    if offline:
        yield CheckResult("kafka", Severity.UNKNOWN, "not asked")
    elif loaded:
        yield from _of_kafka(loaded)


def _of_machine(loaded: Iterable[Settings]) -> list[CheckResult]:
    """Return the findings about files and limits, each once: parts share most of them."""
    found = [
        finding
        for settings in loaded
        if isinstance(settings, ServiceSettings)
        for finding in (*check_certificates(settings.tls), *of_machine(settings.limits), *of_kafka(settings.kafka))
    ]
    return list(dict.fromkeys(found))


def _of_kafka(loaded: dict[str, Settings]) -> Iterator[CheckResult]:
    kafka = dict(next(iter(loaded.values())))["kafka"]  # each part's settings have it; their base class has not
    assert isinstance(kafka, KafkaSettings)
    also = (kafka.segments_topic, kafka.snapshots_topic) if "segment" in loaded else ()
    try:
        topics = asyncio.run(_ask(kafka, also))
    except HeadraceError as error:
        mend = (
            "python -m headrace_common.topics makes it"
            if "is missing" in str(error)
            else "check KAFKA__… and the brokers"
        )
        yield CheckResult("kafka", Severity.WRONG, str(error), mend)
        return
    yield CheckResult(
        "kafka", Severity.FINE, f"{kafka.bootstrap_servers} answers; {', '.join(t.name for t in topics)} exist"
    )
    unread = [topic.name for topic in topics if not topic.configuration]
    if unread:
        yield CheckResult(
            "kafka",
            Severity.DOUBT,
            f"the settings of {', '.join(unread)} may not be read, so nothing can say whether they keep the promise",
            "allow DESCRIBE_CONFIGS on the topics",
        )
    yield from _of_topics(loaded, topics)


def _of_topics(loaded: dict[str, Settings], topics: Sequence[Topic]) -> Iterator[CheckResult]:
    receivers = [settings for settings in loaded.values() if isinstance(settings, ServiceSettings)]
    largest = max((settings.limits for settings in receivers), key=lambda each: each.event_bytes, default=None)
    found: list[CheckResult] = []
    for number, topic in enumerate(topics):
        found += of_topic(topic, largest if number < 2 else None)
    process = loaded.get("topics")
    if isinstance(process, TopicsProcessSettings):
        found += of_plans(process.kafka, process.topics, {topic.name: topic for topic in topics})
    yield from found or [CheckResult("topics", Severity.FINE, "keep the promise, and hold the largest event")]


async def _ask(kafka: KafkaSettings, also: Sequence[str]) -> list[Topic]:
    await check_reachable(kafka)
    return await describe(kafka, also)
