"""`headrace validate`: what is wrong is said, with what mends it; what is right passes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from headrace_cli.operating.validity import NAMES, RECORD_BYTES, SOON, of_certificates, of_topic, settings_class
from headrace_cli.verbs.validate import validate
from headrace_common.kafka.client import Topic
from headrace_common.operations.settings import MIB, LimitSettings, TlsSettings, load, own_environment
from headrace_common.operations.variables import each_setting, variable

from tests.cli.operating.topics import lead_to
from tests.contract.certificates import Authority
from tests.contract.embedded import EmbeddedKafka
from tests.contract.topic import own_topics


@pytest.fixture(autouse=True)
def without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in own_environment():
        monkeypatch.delenv(name)


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


DAYS = 100


@pytest.mark.parametrize(
    ("later", "verdict"),
    [
        (timedelta(days=DAYS) - SOON - timedelta(hours=1), True),
        (timedelta(days=DAYS) - SOON + timedelta(hours=1), None),
        (timedelta(days=DAYS, hours=1), False),
        (timedelta(hours=-2), False),
    ],
)
def test_the_ends_of_certificates(tmp_path: Path, later: timedelta, verdict: bool | None) -> None:
    cert, key = Authority(tmp_path).issue("server", None, days=DAYS)
    (found,) = of_certificates(TlsSettings(cert=cert, key=key), datetime.now(UTC) + later)
    assert found[1] is verdict


def test_certificates_that_cannot_be_used(tmp_path: Path) -> None:
    assert list(of_certificates(TlsSettings())) == []
    (other := tmp_path / "x.pem").write_bytes(b"nonsense")
    cert, key = Authority(tmp_path).issue("server", None)
    _, another = Authority(tmp_path).issue("another", None)
    for wrong in ({"key": another}, {"cert": tmp_path / "none"}, {"cert": other}, {"client_ca": other}):
        *_, found = of_certificates(TlsSettings(**{"cert": cert, "key": key, **wrong}))
        assert found[1] is False


def test_a_topic_holds_the_largest_event() -> None:
    for less in (0, 1):
        topic = Topic("t", 1, MIB + RECORD_BYTES - less)
        assert len(list(of_topic(topic, LimitSettings(event_bytes=MIB)))) == less
    weak = of_topic(Topic("t", 1, 4 * MIB, ("fewer than 3 replicas",)), None)
    assert [ok for _, ok, _ in weak] == [False]


@pytest.mark.kafka
def test_what_kafka_has(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lead_to(own_topics(kafka.bootstrap), monkeypatch)
    assert validate(["forward", "lake", "topics"]) == 0
    assert capsys.readouterr().out.endswith("\nvalid\n")
    monkeypatch.setenv("HEADRACE_KAFKA__EVENTS_TOPIC", "nowhere")
    assert validate(["forward"]) == 78
    out = capsys.readouterr().out
    assert "topic nowhere is missing" in out
    assert "python -m headrace_common.topics makes it" in out


KAFKA = "HEADRACE_KAFKA__BOOTSTRAP_SERVERS"


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"HEADRACE_LIMITS__FRAME_BYTES": "17"}, "HEADRACE_LIMITS__FRAME_BYTES"),
        ({"HEADRACE_KAFKA__SECURITY_PROTOCOL": "SASL_SSL"}, "needs SASL_USERNAME and SASL_PASSWORD"),
        ({"HEADRACE_TLS__CERT": "/nowhere.pem", "HEADRACE_TLS__KEY": "/nowhere.key"}, "TLS__CERT"),
        ({"HEADRACE_FORWARD__SHARED_KEYS": "x"}, "HEADRACE_FORWARD__SHARED_KEYS: there is no such setting"),
        ({"HEADRACE_FORWARD_SHARED_KEY": "x"}, "HEADRACE_FORWARD_SHARED_KEY:"),
        ({KAFKA: "no-such-host.invalid:9092"}, "does not resolve"),
    ],
)
def test_a_wrong_setting_ends_with_78(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], environment: dict[str, str], said: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert validate(["forward", "courier"], offline=KAFKA not in environment) == 78
    assert capsys.readouterr().out.count(said) == 1
