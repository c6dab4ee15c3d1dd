"""Settings from the environment and from files of secrets, and what refuses to start."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from headrace_cli.operating.validity import NAMES, settings_class
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.settings import (
    LimitSettings,
    ServiceSettings,
    TopicsProcessSettings,
    environment,
    load,
    own_environment,
)
from headrace_common.operations.variables import each_setting, refuse_near, variable
from headrace_forward.settings import ForwardSettings
from headrace_lake.configuration.settings import LakeProcessSettings

MIB = 1 << 20


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variables of ours but those that a test sets."""
    for name in own_environment():
        monkeypatch.delenv(name)


def test_variables_have_any_case_and_every_problem_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    given = environment("limits", frame_time=7.5) | {"headrace_limits__connections": "9"}
    for name, value in (given | {"HEADRACE_FORWARD__HEARTBEAT": "false"}).items():
        monkeypatch.setenv(name, value)
    settings = load(ForwardSettings)
    assert (settings.limits.frame_time, settings.limits.connections, settings.forward.heartbeat) == (7.5, 9, False)
    wrong = {"LIMITS__FRAME_TIME": "soon", "OPS__PORT": "70000", "LOG__LEVEL": "loud"}
    for name, value in wrong.items():
        monkeypatch.setenv(f"HEADRACE_{name}", value)
    with pytest.raises(ConfigError) as caught:
        load(ForwardSettings)
    assert {line.partition(": ")[0] for line in str(caught.value).splitlines()} == {f"HEADRACE_{n}" for n in wrong}


def test_a_secret_of_file_or_variable_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, name = tmp_path / "secret", "HEADRACE_KAFKA__SASL_PASSWORD"
    monkeypatch.setenv("HEADRACE_KAFKA__SECURITY_PROTOCOL", "SASL_PLAINTEXT")
    monkeypatch.setenv("HEADRACE_KAFKA__SASL_USERNAME", "u")
    monkeypatch.setenv(f"{name}_FILE", str(secret))
    with pytest.raises(ConfigError, match=f"{name}_FILE: .+No such file"):
        load(ForwardSettings)
    secret.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=f"{name}_FILE"):
        load(ForwardSettings)
    secret.write_bytes(" pässword \n".encode())
    settings = load(ForwardSettings)
    assert settings.kafka.sasl_password.get_secret_value() == " pässword "
    assert "pässword" not in repr(settings)
    monkeypatch.setenv(name, "pw")
    with pytest.raises(ConfigError, match="are both set"):
        load(ForwardSettings)
    monkeypatch.delenv(f"{name}_FILE")
    monkeypatch.setenv("HEADRACE_KAFKA__ACK_DEADLINE", "-1")
    monkeypatch.setenv(name, "hush-hush")
    with pytest.raises(ConfigError) as caught:
        load(ForwardSettings)
    assert "hush-hush" not in str(caught.value)


FRAME = {"frame_bytes": MIB, "inflated_bytes": 2 * MIB, "event_bytes": MIB}
BUDGETS = {**FRAME, "connection_budget": 3 * MIB, "process_budget": 6 * MIB}


@pytest.mark.parametrize(
    ("fits", "not_any_more", "says"),
    [
        (BUDGETS, {"connection_budget": 3 * MIB - 1}, "must hold one frame"),
        (BUDGETS, {"process_budget": 6 * MIB - 1}, "at least twice"),
        ({"frame_bytes": MIB}, {"event_bytes": MIB + 1}, "EVENT_BYTES"),  # the default is no contradiction
        ({"frame_bytes": MIB, "event_bytes": MIB}, {"event_bytes": MIB + 1}, "EVENT_BYTES"),
    ],
)
def test_limits_that_do_not_fit(fits: dict[str, int], not_any_more: dict[str, int], says: str) -> None:
    LimitSettings(**fits)
    with pytest.raises(ValueError, match=says):
        LimitSettings(**{**fits, **not_any_more})


REFUSED = [
    ("TLS__CERT", "/c", "TLS__CERT and TLS__KEY go together"),
    ("TLS__CLIENT_CA", "/ca", "CLIENT_CA needs"),
    ("KAFKA__BOOTSTRAP_SERVER", "typo:9092", "^HEADRACE_KAFKA__BOOTSTRAP_SERVER: there is no such setting$"),
    *(("LIMITS__FRAME_TIME", value, "^HEADRACE_LIMITS__FRAME_TIME: ") for value in ("nan", "inf", "-inf", "-1")),
    *(("KAFKA", value, "^HEADRACE_KAFKA: Input should be a valid dict") for value in ("{", "7", "[]", "plain")),
    ("KAFKA__EVENTS_TOPIC", "headrace.segments", "two are the same$"),
    ("KAFKA__REQUEST_TIMEOUT", "30000", "less than or equal to 3600$"),
    ("KAFKA__EVENTS_TOPIC_FILE", "/x", "there is no such setting"),
    ("LISTEN__TRUSTED_PROXIES", "10.0.0.0/8, balancer", "'balancer' is neither an address nor a network"),
    ("LIMITS__EVENT_BYTES", str(32 * MIB), "LIMITS__EVENT_BYTES is above LIMITS__FRAME_BYTES"),
    ("LIMITS__EVENT_BYTES", "5s", "5s has none of the units b, kb, mb"),
    ("LIMITS__EVENT_BYTES", "1.0001KiB", "valid integer"),
    ("LIMITS__EVENT_BYTES", "0.5KiB", "greater than or equal to 1024"),
    ("LIMITS__EVENT_BYTES", "MiB", "valid integer"),
    ("LIMITS__CONNECTION_AGE", "5MiB", "5MiB has none of the units ms, s, m, min, h, d"),
    ("LIMITS__CONNECTION_AGE", "-5s", "valid number"),
    ("LAKE__DRIVER_MEMORY", "many", "should match pattern"),
    *(
        ("KAFKA__BOOTSTRAP_SERVERS", text, "^HEADRACE_KAFKA__BOOTSTRAP_SERVERS: ")
        for text in (
            "", "kafka", "kafka:", ":9092", "kafka:99999", "kafka:0", "kafka:x", "::1:9092", "[::g]:1", "a:1,",
            "PLAINTEXT://a:1", "a..b:1",
        )
    ),
    # names near a setting's: a wrong name must not open a door silently
    ("FORWARD_SHARED_KEY", "k", r"HEADRACE_FORWARD__SHARED_KEY\b"),
    ("FORWARD_SHARED_KEY_FILE", "k", r"HEADRACE_FORWARD__SHARED_KEY_FILE\b"),
    ("FROWARD__SHARED_KEY", "k", r"HEADRACE_FORWARD__SHARED_KEY\b"),
    ("FORWARD___USERS", "k", r"HEADRACE_FORWARD___USERS\b"),
    ("TLS_CERT", "k", r"HEADRACE_TLS__CERT\b"),
    ("TSL__CLIENT_CA", "k", r"HEADRACE_TLS__CLIENT_CA\b"),
    ("KAFKA_SECURITY_PROTOCOL", "k", r"HEADRACE_KAFKA__SECURITY_PROTOCOL\b"),
    ("KAFKA_BOOTSTRAP_SERVERS", "k:1", r"HEADRACE_KAFKA__BOOTSTRAP_SERVERS\b"),
    ("LIMIT__FRAME_TIME", "5", r"HEADRACE_LIMITS__FRAME_TIME\b"),
]  # fmt: skip


TAKEN = [
    *((name, "k") for name in ("STATE", "FORWARD_PORT", "FOO")),
    *((name, "k") for name in ("LAKE__PATH", "LUMBERJACK__WHATEVER")),  # of sections that it lacks
    ("OPS_PORT", "tcp://10.0.0.1:8080"),  # told by Kubernetes of a service of this name
    *(
        ("KAFKA__BOOTSTRAP_SERVERS", text)
        for text in (
            "kafka:9092", "a.example:1,b_c:65535", "10.0.0.1:9092, 10.0.0.2:9092", "[::1]:9092", "[2001:db8::1]:9092,x:1",
            "kafka.example.:9092,bücher.example:9092",
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "said"), [*REFUSED, *((*given, "") for given in TAKEN)])
def test_a_variable_is_taken_or_named_in_a_refusal(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(f"HEADRACE_{name}", value)
    with pytest.raises(ConfigError, match=said) if said else nullcontext() as caught:
        settings: Any = load(LakeProcessSettings if name.startswith("LAKE__D") else ForwardSettings)
        assert settings.kafka.bootstrap_servers == (value if "BOOTSTRAP" in name else "localhost:9092")
    assert caught is None or (name in str(caught.value) and "\n" not in str(caught.value))


def test_no_part_refuses_what_another_reads() -> None:
    classes = [settings_class(part) for part in NAMES]
    names = [variable(section, name) for cls in classes for section, name, _ in each_setting(cls)]
    for cls in classes:
        refuse_near(cls, dict.fromkeys([*names, *(f"{name}_FILE" for name in names)]))


UNITS = [
    *(
        ("TOPICS__RETENTION_BYTES", text, value)
        for text, value in (
            ("2097152", 2_097_152), ("2MiB", 2_097_152), ("2 mib", 2_097_152), (" 1.5KiB ", 1536), ("16MB", 16_000_000),
            ("1GiB", 1 << 30), ("1GB", 10**9), ("2048B", 2048),
        )
    ),
    *(
        ("LIMITS__CONNECTION_AGE", text, value)
        for text, value in (
            ("90", 90), ("0.5", 0.5), ("500ms", 0.5), ("5s", 5), ("2m", 120), ("2 min", 120), ("1.5h", 5400), ("1d", 86_400),
        )
    ),
    ("TOPICS__EVENTS_RETENTION", "7d", 7 * 86_400),
    ("TOPICS__EVENTS_RETENTION", "60500ms", None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "value"), UNITS)
def test_units(monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: float | None) -> None:
    section, _, setting = name.lower().partition("__")
    monkeypatch.setenv(f"HEADRACE_{name}", text)
    with pytest.raises(ConfigError, match=name) if value is None else nullcontext():
        settings = load(TopicsProcessSettings if section == "topics" else ServiceSettings)
        assert getattr(getattr(settings, section), setting) == value
