"""`headrace validate`: what is wrong is said, with what mends it; what is right passes."""

from __future__ import annotations

import asyncio
import json
import re
import resource
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from headrace_cli.machine.memory import usable_memory
from headrace_cli.operating import validate as checks
from headrace_cli.operating.parts import NAMES, CheckResult, Severity, settings_class
from headrace_cli.operating.validate import SOON, check_certificates, validate
from headrace_cli.stack.certificates import CERTIFICATE_DAYS, Certificates, ensure
from headrace_common.connection.files import OWN_FILES
from headrace_common.kafka.client import Topic, describe
from headrace_common.operations.settings import (
    MIB,
    KafkaSettings,
    LimitSettings,
    TlsSettings,
    TopicSettings,
    load,
    own_environment,
)
from headrace_common.operations.variables import each_setting, variable

from tests.cli.operating.topics import lead_to
from tests.contract.embedded import EmbeddedKafka
from tests.contract.topic import own_topics


@pytest.fixture(autouse=True)
def without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in own_environment():
        monkeypatch.delenv(name)


def said(findings: Iterator[CheckResult] | list[CheckResult]) -> list[tuple[Severity, str]]:
    return [(found.verdict, found.reason) for found in findings]


SIZES = re.compile(r"\w+_(bytes|budget|memory)")
TIMES = re.compile(r"\w+_(time|timeout|age|delay|deadline|retention|wait|every|piece)|trigger|horizon")


@pytest.mark.parametrize("part", NAMES)
def test_every_size_and_every_duration_takes_a_unit(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    cls = settings_class(part)
    wanted = {}
    for section, name, info in each_setting(cls):
        for pattern, unit, usual in ((SIZES, "B", 1 << 30), (TIMES, "s", 7200)):
            if pattern.fullmatch(name) and info.default != -1 and not isinstance(info.default, str):
                wanted[section, name] = info.default if info.default is not None else usual
                monkeypatch.setenv(variable(section, name), f"{wanted[section, name]}{unit}")
    assert wanted
    found = load(cls)
    assert {place: getattr(getattr(found, place[0]), place[1]) for place in wanted} == wanted


class TestCertificates:
    @pytest.fixture
    def made(self, tmp_path: Path) -> Certificates:
        return ensure(tmp_path, "127.0.0.1")

    def settings(self, cert: Path, key: Path, client_ca: Path | None = None) -> TlsSettings:
        return TlsSettings(cert=cert, key=key, client_ca=client_ca)

    def test_a_good_one(self, made: Certificates) -> None:
        (found,) = check_certificates(self.settings(*made.server, made.ca))
        assert found.verdict is Severity.FINE
        assert "localhost" in found.reason
        assert check_certificates(TlsSettings()) == []

    @pytest.mark.parametrize(
        ("later", "verdict", "reason"),
        [
            (timedelta(days=CERTIFICATE_DAYS) - SOON - timedelta(hours=1), Severity.FINE, "until"),
            (timedelta(days=CERTIFICATE_DAYS) - SOON + timedelta(hours=1), Severity.DOUBT, "expires in 29 days"),
            (timedelta(days=CERTIFICATE_DAYS, hours=1), Severity.WRONG, "has expired"),
            (timedelta(hours=-2), Severity.WRONG, "is not valid before"),
        ],
    )
    def test_dates(self, made: Certificates, later: timedelta, verdict: Severity, reason: str) -> None:
        (found,) = check_certificates(self.settings(*made.server), datetime.now(UTC) + later)
        assert found.verdict is verdict
        assert reason in found.reason

    def test_one_for_clients(self, made: Certificates) -> None:
        reasons = " ".join(reason for _, reason in said(check_certificates(self.settings(*made.client))))
        assert "names no host" in reasons
        assert "is not for servers" in reasons

    def test_the_key_of_another(self, made: Certificates) -> None:
        (found,) = check_certificates(self.settings(made.server[0], made.client[1]))
        assert "is not the key of" in found.reason

    def test_a_chain_and_its_order(self, made: Certificates, tmp_path: Path) -> None:
        chain, turned = tmp_path / "chain.pem", tmp_path / "turned.pem"
        chain.write_bytes(made.server[0].read_bytes() + made.ca.read_bytes())
        turned.write_bytes(made.server[0].read_bytes() + made.client[0].read_bytes())
        assert said(check_certificates(self.settings(chain, made.server[1])))[0][0] is Severity.FINE
        (found,) = check_certificates(self.settings(turned, made.server[1]))
        assert "is no chain" in found.reason

    def test_an_authority_that_is_none(self, made: Certificates) -> None:
        (found,) = check_certificates(self.settings(*made.server, made.client[0]))
        assert "no authority" in found.reason

    @pytest.mark.parametrize("content", [None, b"", b"nonsense"])
    def test_what_cannot_be_read(self, made: Certificates, tmp_path: Path, content: bytes | None) -> None:
        path = tmp_path / "x.pem"
        if content is not None:
            path.write_bytes(content)
        (found,) = check_certificates(self.settings(path, made.server[1]))
        assert found.verdict is Severity.WRONG
        assert "cannot be read" in found.reason
        (found,) = check_certificates(self.settings(*made.server, path))
        assert "TLS__CLIENT_CA" in found.reason


@pytest.mark.parametrize(
    ("findings", "number"),
    [
        *((checks.of_machine(LimitSettings(connections=1000 - OWN_FILES + more)), more) for more in (0, 1)),
        *((checks.of_kafka(KafkaSettings(ack_deadline=30 - less, request_timeout=30)), less) for less in (0, 1)),
        *(
            (checks.of_topic(Topic("t", 1, MIB + checks.RECORD_BYTES - less), LimitSettings(event_bytes=MIB)), less)
            for less in (0, 1)
        ),
        (checks.of_topic(Topic("t", 1, 4 * MIB, ("fewer than 3 replicas",)), None), 1),
    ],
)
def test_limits(monkeypatch: pytest.MonkeyPatch, findings: Iterator[CheckResult], number: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 1000))
    assert len(list(findings)) == number


@pytest.mark.parametrize("less", [0, 1])
def test_memory(monkeypatch: pytest.MonkeyPatch, less: int) -> None:
    settings = LimitSettings(connections=1)
    monkeypatch.setattr(checks, "usable_memory", lambda: 2 * settings.process_budget - 2 * less)
    assert len(list(checks.of_machine(settings))) == less


@pytest.mark.parametrize(
    ("groups", "limits", "usable"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "200", "a/memory.max": "max"}, 200),
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "100"}, 100),
        ("0::/a\n", {"a/memory.max": "2000"}, 1000),
        ("0::/\n", {"memory.max": "300"}, 300),
        ("5:cpu,memory:/a:b\n1:name=systemd:/a\n0::/\n", {"memory/a:b/memory.limit_in_bytes": "300"}, 300),
        ("4:memory:/docker/1f\n", {"memory/memory.limit_in_bytes": "300"}, 300),
        ("4:memory:/a\n", {"memory/a/memory.limit_in_bytes": f"{(1 << 63) - 4096}"}, 1000),
        ("4:cpu:/a\n", {"memory/a/memory.limit_in_bytes": "300"}, 1000),
        (None, {}, 1000),
    ],
)
def test_memory_of_a_control_group(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, groups: str | None, limits: dict[str, str], usable: int
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=1000))
    for name, text in limits.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    if groups is not None:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(groups)
    assert usable_memory(tmp_path) == usable


@pytest.mark.kafka
class TestOnKafka:
    def test_all_is_well(
        self, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        lead_to(own_topics(kafka.bootstrap), monkeypatch)
        monkeypatch.setenv("HEADRACE_TOPICS__SEGMENTS_PARTITIONS", "0")
        monkeypatch.setenv("HEADRACE_TOPICS__EVENTS_PARTITIONS", "4")
        monkeypatch.setattr(checks, "of_machine", lambda _: iter(()))
        assert validate(["forward", "lake", "topics"], strict=True, as_json=True) == 0
        document = json.loads(capsys.readouterr().out)
        assert {check["verdict"] for check in document["checks"]} == {"fine"}

    def test_a_topic_that_is_missing(
        self, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("HEADRACE_KAFKA__BOOTSTRAP_SERVERS", kafka.bootstrap)
        monkeypatch.setenv("HEADRACE_KAFKA__EVENTS_TOPIC", "nowhere")
        assert validate(["forward"]) == 78
        out = capsys.readouterr().out
        assert "topic nowhere is missing" in out
        assert "→ python -m headrace_common.topics makes it" in out

    def test_topics_that_another_setting_made(self, kafka: EmbeddedKafka) -> None:
        made = own_topics(kafka.bootstrap, TopicSettings(events_partitions=2, segments_partitions=2))
        also = (made.segments_topic, made.snapshots_topic)
        found = {topic.name: topic for topic in asyncio.run(describe(made, also))}
        same = TopicSettings(events_partitions=2, segments_partitions=2)
        assert list(checks.of_plans(made, same, found)) == []
        wanted = TopicSettings(events_partitions=3, segments_partitions=3, events_retention=8 * 86_400)
        findings = list(checks.of_plans(made, wanted, found))
        assert [finding.verdict for finding in findings] == [Severity.DOUBT] * 3
        assert "retention.ms is" in findings[0].reason
        assert "2 partitions, wanted 3" in findings[0].reason
        assert "they never change" in findings[1].next


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"HEADRACE_LIMITS__FRAME_BYTES": "17"}, "HEADRACE_LIMITS__FRAME_BYTES"),
        ({"HEADRACE_KAFKA__SECURITY_PROTOCOL": "SASL_SSL"}, "needs SASL_USERNAME and SASL_PASSWORD"),
        ({"HEADRACE_TLS__CERT": "/nowhere.pem", "HEADRACE_TLS__KEY": "/nowhere.key"}, "cannot be read"),
        ({"HEADRACE_FORWARD__SHARED_KEYS": "x"}, "did you mean"),
        ({"HEADRACE_FORWARD_SHARED_KEY": "x"}, "HEADRACE_FORWARD_SHARED_KEY:"),
    ],
)
def test_a_wrong_setting_ends_with_78(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], environment: dict[str, str], said: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert validate(["forward", "courier"], offline=True) == 78
    assert capsys.readouterr().out.count(said) == 1


def test_a_file_and_a_misspelt_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checks, "of_machine", lambda _: iter(()))
    path = tmp_path / "headrace.yaml"
    path.write_text("limits: {connections: 5}\n")
    assert validate(["forward"], path, offline=True, strict=True) == 0
    monkeypatch.setenv("HEADRACE_LIMIT__DEPTH", "5")
    assert validate(["forward"], path, offline=True) == 0
    assert "did you mean limits?" in capsys.readouterr().out
    assert validate(["forward"], path, offline=True, strict=True) == 78
    path.write_text("limits: {connections: 0}\nnonsense: {}\n")
    assert validate(["forward"], path, offline=True) == 78
    assert validate(["forward"], tmp_path / "none.yaml", offline=True) == 78


def test_kafka_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HEADRACE_KAFKA__BOOTSTRAP_SERVERS", "no-such-host.invalid:9092")
    assert validate(["lake"]) == 78
    assert "does not resolve" in capsys.readouterr().out
