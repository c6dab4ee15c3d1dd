"""Settings from the environment, YAML and secret files, and what refuses to start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from headrace_cli.operating.parts import NAMES, settings_class
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.settings import (
    LimitSettings,
    ServiceSettings,
    TopicSettings,
    TopicsProcessSettings,
    describe,
    environment,
    load,
    own_environment,
    parse_arguments,
)
from headrace_common.operations.variables import each_setting, refuse_near_guards, sections, variable
from headrace_forward.settings import ForwardSettings
from headrace_lake.configuration.settings import LakeProcessSettings

MIB = 1 << 20


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variables of ours but those that a test sets."""
    for name in own_environment():
        monkeypatch.delenv(name)


@pytest.fixture
def yaml(tmp_path: Path) -> Path:
    return tmp_path / "headrace.yaml"


class TestDefaults:
    def test_every_setting_has_a_description_and_a_section_that_yaml_knows(self) -> None:
        for cls in (ForwardSettings, TopicsProcessSettings):
            for section, name, info in each_setting(cls):
                assert info.description, (section, name)
                assert section in sections()


class TestEnvironment:
    def test_sets_in_any_case(self, monkeypatch: pytest.MonkeyPatch) -> None:
        given = environment("limits", frame_time=7.5) | {"headrace_limits__connections": "9"}
        for name, value in (given | {"HEADRACE_FORWARD__HEARTBEAT": "false"}).items():
            monkeypatch.setenv(name, value)
        settings = load(ForwardSettings)
        assert (settings.limits.frame_time, settings.limits.connections, settings.forward.heartbeat) == (7.5, 9, False)
        assert settings.limits.frame_bytes == 16 * MIB

    def test_every_problem_is_said_in_a_line_of_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        wrong = {"LIMITS__CONNECTIONS": "0", "LIMITS__FRAME_TIME": "soon", "OPS__PORT": "70000", "LOG__LEVEL": "loud"}
        for name, value in wrong.items():
            monkeypatch.setenv(f"HEADRACE_{name}", value)
        with pytest.raises(ConfigError) as caught:
            load(ForwardSettings)
        assert {line.partition(": ")[0] for line in str(caught.value).splitlines()} == {f"HEADRACE_{n}" for n in wrong}


class TestYaml:
    def test_sets_and_the_environment_wins(self, yaml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        yaml.write_text("kafka:\n  bootstrap_servers: a:1\n  events_topic: e\nlimits: {connections: 5}\n")
        monkeypatch.setenv("HEADRACE_KAFKA__EVENTS_TOPIC", "mine")
        settings = load(ForwardSettings, yaml)
        assert (settings.kafka.bootstrap_servers, settings.kafka.events_topic) == ("a:1", "mine")
        assert settings.limits.connections == 5

    def test_one_file_may_configure_every_part(self, yaml: Path) -> None:
        yaml.write_text("lake: {path: /x, anything: 1}\ntopics: {events_partitions: 3}\nforward: {heartbeat: false}\n")
        assert not load(ForwardSettings, yaml).forward.heartbeat
        assert load(TopicsProcessSettings, yaml).topics.events_partitions == 3

    def test_an_empty_file_and_an_empty_section_set_nothing(self, yaml: Path) -> None:
        for text in ("", "# nothing\n", "kafka:\n", "kafka: {}\nlimits:\n  # connections: 5\n"):
            yaml.write_text(text)
            assert load(ForwardSettings, yaml) == load(ForwardSettings)

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("kafak: {}", "no section is called kafak$"),
            ("nothing_like_it: {}", "no section is called nothing_like_it$"),
            ("limits: {connection: 1}", "HEADRACE_LIMITS__CONNECTION: there is no such setting"),
            ("limits: 7", "expected a mapping"),
            ("[1, 2]", "expected a mapping"),
            ("just text", "expected a mapping"),
            ("limits: {connections: many}", "HEADRACE_LIMITS__CONNECTIONS: "),
            ("a: b: c", "headrace.yaml"),
            ("a: [", "headrace.yaml"),
        ],
    )
    def test_what_is_wrong_is_said(self, text: str, problem: str, yaml: Path) -> None:
        yaml.write_text(text)
        with pytest.raises(ConfigError, match=problem):
            load(ForwardSettings, yaml)

    def test_a_file_that_cannot_be_read(self, yaml: Path) -> None:
        with pytest.raises(ConfigError, match=r"headrace\.yaml: No such file or directory$"):
            load(ForwardSettings, yaml)
        yaml.write_bytes(b"\xff\xfe\xfd")
        with pytest.raises(ConfigError, match=r"headrace\.yaml"):
            load(ForwardSettings, yaml)


class TestSecrets:
    FILE = "HEADRACE_KAFKA__SASL_PASSWORD_FILE"

    @pytest.fixture(autouse=True)
    def sasl(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADRACE_KAFKA__SECURITY_PROTOCOL", "SASL_PLAINTEXT")
        monkeypatch.setenv("HEADRACE_KAFKA__SASL_USERNAME", "u")

    def test_from_a_file_without_its_last_newline_and_not_directly_too(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        secret = tmp_path / "secret"
        secret.write_text(" p w \n")
        monkeypatch.setenv(self.FILE, str(secret))
        settings = load(ForwardSettings)
        assert settings.kafka.sasl_password.get_secret_value() == " p w "
        assert "p w" not in repr(settings)
        monkeypatch.setenv("HEADRACE_KAFKA__SASL_PASSWORD", "pw")
        with pytest.raises(ConfigError, match="are both set"):
            load(ForwardSettings)

    def test_a_file_that_cannot_be_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        secret = tmp_path / "secret"
        monkeypatch.setenv(self.FILE, str(secret))
        with pytest.raises(ConfigError, match=self.FILE):
            load(ForwardSettings)
        secret.write_bytes(b"\xff\xfe")
        with pytest.raises(ConfigError, match=self.FILE):
            load(ForwardSettings)

    def test_are_not_in_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADRACE_KAFKA__SASL_PASSWORD", "hush-hush")
        monkeypatch.setenv("HEADRACE_KAFKA__ACK_DEADLINE", "-1")
        with pytest.raises(ConfigError) as caught:
            load(ForwardSettings)
        assert "hush-hush" not in str(caught.value)


FRAME = {"frame_bytes": MIB, "inflated_bytes": 2 * MIB, "event_bytes": MIB}
BUDGETS = {**FRAME, "connection_budget": 3 * MIB, "process_budget": 6 * MIB}


class TestContradictions:
    @pytest.mark.parametrize(
        ("fits", "not_any_more", "says"),
        [
            (BUDGETS, {"connection_budget": 3 * MIB - 1}, "must hold one frame"),
            (BUDGETS, {"process_budget": 6 * MIB - 1}, "at least twice"),
            ({"frame_bytes": MIB}, {"event_bytes": MIB + 1}, "EVENT_BYTES"),  # the default is no contradiction
            ({"frame_bytes": MIB, "event_bytes": MIB}, {"event_bytes": MIB + 1}, "EVENT_BYTES"),
        ],
    )
    def test_limits_that_do_not_fit(self, fits: dict[str, int], not_any_more: dict[str, int], says: str) -> None:
        LimitSettings(**fits)
        with pytest.raises(ValueError, match=says):
            LimitSettings(**{**fits, **not_any_more})

    def test_the_defaults_fit_each_other(self) -> None:
        """The largest event is one batch, and a batch is at most three quarters of what a topic takes."""
        assert LimitSettings().event_bytes == TopicSettings().max_message_bytes * 3 // 4


class TestCommandLine:
    def test_help_lists_every_setting(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as stopped:
            parse_arguments(ForwardSettings, "program", "It receives.", ["--help"])
        assert stopped.value.code == 0
        text = capsys.readouterr().out
        for section, name, _ in each_setting(ForwardSettings):
            assert variable(section, name) in text

    def test_config(self, yaml: Path) -> None:
        yaml.write_text("limits: {connections: 5}")
        assert parse_arguments(ForwardSettings, "p", "d", ["--config", str(yaml)]).limits.connections == 5

    def test_a_password_is_not_described(self) -> None:
        assert not any("**" in line for line in describe(ServiceSettings))


REFUSED = [
    ("TLS__CERT", "/c", "TLS__CERT and TLS__KEY go together"),
    ("TLS__CLIENT_CA", "/ca", "CLIENT_CA needs"),
    ("KAFKA__BOOTSTRAP_SERVER", "typo:9092", "^HEADRACE_KAFKA__BOOTSTRAP_SERVER: there is no such setting$"),
    *(("LIMITS__FRAME_TIME", value, "^HEADRACE_LIMITS__FRAME_TIME: ") for value in ("nan", "inf", "-inf", "-1")),
    *(("KAFKA", value, "^HEADRACE_KAFKA is a section") for value in ("{", "7", "[]", "plain")),
    ("KAFKA__EVENTS_TOPIC", "headrace.segments", "two are the same$"),
    ("KAFKA__REQUEST_TIMEOUT", "30000", "less than or equal to 3600$"),
    ("KAFKA__EVENTS_TOPIC_FILE", "/x", "there is no such setting"),
    ("LISTEN__TRUSTED_PROXIES", "10.0.0.0/8, balancer", "'balancer' is neither an address nor a network"),
    ("LIMITS__EVENT_BYTES", str(32 * MIB), "LIMITS__EVENT_BYTES is above LIMITS__FRAME_BYTES"),
    ("LIMITS__EVENT_BYTES", "5s", "5s has no unit of bytes: write a number, or one with KiB, MiB"),
    ("LIMITS__EVENT_BYTES", "1.0001KiB", "not a whole number of bytes"),
    ("LIMITS__EVENT_BYTES", "0.5KiB", "greater than or equal to 1024"),
    ("LIMITS__EVENT_BYTES", "MiB", "valid integer"),
    ("LIMITS__IDLE_TIME", "5MiB", "5MiB has no unit of time: write seconds, or a number with ms, s, m, h or d"),
    ("LIMITS__IDLE_TIME", "-5s", "valid number"),
    ("LAKE__DRIVER_MEMORY", "many", "should match pattern"),
    *(
        ("KAFKA__BOOTSTRAP_SERVERS", text, "^HEADRACE_KAFKA__BOOTSTRAP_SERVERS: ")
        for text in (
            "", "kafka", "kafka:", ":9092", "kafka:99999", "kafka:0", "kafka:x", "::1:9092", "[::g]:1", "a:1,",
            "PLAINTEXT://a:1", "a..b:1",
        )
    ),
    *(
        (f"{section}__HOST", text, f"^HEADRACE_{section}__HOST: ")
        for section in ("LISTEN", "OPS")
        for text in ("localhost:24224", "[::]", "tcp://a", "a b", "a,b", "", "a" * 64)
    ),
    # names near a guard: a wrong name must not open a door silently
    ("FORWARD_SHARED_KEY", "k", r"HEADRACE_FORWARD__SHARED_KEY\b"),
    ("FORWARD_SHARED_KEY_FILE", "k", r"HEADRACE_FORWARD__SHARED_KEY_FILE\b"),
    ("FROWARD__SHARED_KEY", "k", r"HEADRACE_FORWARD__SHARED_KEY\b"),
    ("FORWARD___USERS", "k", r"HEADRACE_FORWARD___USERS\b"),
    ("TLS_CERT", "k", r"HEADRACE_TLS__CERT\b"),
    ("TSL__CLIENT_CA", "k", r"HEADRACE_TLS__CLIENT_CA\b"),
    ("KAFKA_SECURITY_PROTOCOL", "k", r"HEADRACE_KAFKA__SECURITY_PROTOCOL\b"),
    ("LISTEN_TRUSTED_PROXIES", "k", r"HEADRACE_LISTEN__TRUSTED_PROXIES\b"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "said"), REFUSED)
def test_a_variable_that_is_wrong_is_refused_in_one_sentence_that_names_it(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(f"HEADRACE_{name}", value)
    with pytest.raises(ConfigError, match=said) as caught:
        load(LakeProcessSettings if name.startswith("LAKE") else ForwardSettings)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, "k") for name in ("LIMITS_FRAME_TIME", "STATE", "FORWARD_PORT", "FOO")),
        *((name, "k") for name in ("LAKE__PATH", "LUMBERJACK__WHATEVER")),  # of sections that it lacks
        *(
            (f"{section}__HOST", text)
            for section in ("LISTEN", "OPS")
            for text in ("localhost", "0.0.0.0", "::", "fe80::1%eth0", "my_host.example")
        ),
        *(
            ("KAFKA__BOOTSTRAP_SERVERS", text)
            for text in (
                "kafka:9092",
                "a.example:1,b_c:65535",
                "10.0.0.1:9092, 10.0.0.2:9092",
                "[::1]:9092",
                "[2001:db8::1]:9092,x:1",
                "kafka.example.:9092,bücher.example:9092",
            )
        ),
    ],
)
def test_other_variables_are_taken(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"HEADRACE_{name}", value)
    kafka = load(ForwardSettings).kafka
    assert kafka.bootstrap_servers == (value if "BOOTSTRAP" in name else "localhost:9092")


def test_files_are_utf_8_in_any_locale(tmp_path: Path) -> None:
    secret, config = tmp_path / "secret", tmp_path / "config.yaml"
    secret.write_bytes("pässword".encode())
    config.write_bytes("kafka: {sasl_username: bücher}".encode())
    script = (
        "import sys; from pathlib import Path; from headrace_common.operations.settings import load; "
        "from headrace_forward.settings import ForwardSettings; found = load(ForwardSettings, Path(sys.argv[1])); "
        "print(ascii((found.forward.shared_key.get_secret_value(), found.kafka.sasl_username)))"
    )
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(config)],
        env={**os.environ, **locale, "HEADRACE_FORWARD__SHARED_KEY_FILE": str(secret)},
        stdout=subprocess.PIPE,
        check=True,
    )
    assert done.stdout.decode() == ascii(("pässword", "bücher")) + "\n"


def test_no_part_refuses_what_another_reads() -> None:
    classes = [settings_class(part) for part in NAMES]
    names = [variable(section, name) for cls in classes for section, name, _ in each_setting(cls)]
    for cls in classes:
        refuse_near_guards(cls, [*names, *(f"{name}_FILE" for name in names)])


class TestUnits:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("2097152", 2_097_152), ("2MiB", 2_097_152), ("2 mib", 2_097_152), (" 1.5KiB ", 1536), ("16MB", 16_000_000),
            ("1GiB", 1 << 30), ("1GB", 10**9), ("2048B", 2048),
        ],
    )  # fmt: skip
    def test_sizes(self, monkeypatch: pytest.MonkeyPatch, text: str, value: int) -> None:
        monkeypatch.setenv("HEADRACE_TOPICS__RETENTION_BYTES", text)
        assert load(TopicsProcessSettings).topics.retention_bytes == value

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("90", 90), ("0.5", 0.5), ("500ms", 0.5), ("5s", 5), ("2m", 120), ("2 min", 120), ("1.5h", 5400), ("1d", 86_400),
        ],
    )  # fmt: skip
    def test_durations(self, monkeypatch: pytest.MonkeyPatch, text: str, value: float) -> None:
        monkeypatch.setenv("HEADRACE_LIMITS__IDLE_TIME", text)
        assert load(ServiceSettings).limits.idle_time == value

    def test_whole_seconds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADRACE_TOPICS__EVENTS_RETENTION", "7d")
        assert load(TopicsProcessSettings).topics.events_retention == 7 * 86_400
        monkeypatch.setenv("HEADRACE_TOPICS__EVENTS_RETENTION", "60500ms")
        with pytest.raises(ConfigError, match="HEADRACE_TOPICS__EVENTS_RETENTION"):
            load(TopicsProcessSettings)
