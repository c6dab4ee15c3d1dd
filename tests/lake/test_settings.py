"""Settings of the landing job: contradictions end with status 78 and one line, before Spark starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from headrace_common.errors import EXIT_CONFIG, ConfigError
from headrace_common.settings import load
from headrace_lake.settings import LakeProcessSettings, location


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"LAKE__PATH": "/x/lake", "LAKE__CHECKPOINT": "/x/lake"}, "must not contain each other"),
        ({"LAKE__PATH": "/x/lake", "LAKE__CHECKPOINT": "/x/lake/checkpoint"}, "must not contain each other"),
        ({"LAKE__PATH": "/x/c/lake", "LAKE__CHECKPOINT": "/x/c/"}, "must not contain each other"),
        ({"LAKE__PATH": "s3a://b/lake", "LAKE__CHECKPOINT": "s3a://b/lake/c"}, "must not contain each other"),
        ({"LAKE__PATH": ""}, "must not be empty"),
        ({"LAKE__TRIGGER": "-1"}, "HEADRACE_LAKE__TRIGGER"),
        ({"LAKE__BATCH_RECORDS": "0"}, "HEADRACE_LAKE__BATCH_RECORDS"),
        ({"LAKE__DRIVER_MEMORY": "lots"}, "HEADRACE_LAKE__DRIVER_MEMORY"),
        ({"LAKE__JARS": "/nowhere"}, "has no jars"),
        (
            {"LAKE__QUARANTINE": '{"bad_jsn": "skip"}'},
            "HEADRACE_LAKE__QUARANTINE: there is no reason bad_jsn; there is: bad_",
        ),
        ({"LAKE__QUARANTINE": '{"bad_json": "drop"}'}, "HEADRACE_LAKE__QUARANTINE__bad_json".upper()),
        ({"LAKE__QUARANTINE": "skip"}, "HEADRACE_LAKE__QUARANTINE: not JSON"),
        ({"LAKE__SPEED": "9"}, "HEADRACE_LAKE__SPEED: there is no such setting"),
        ({"KAFKA__QUARANTINE_TOPIC": "headrace.events"}, "are the same"),
    ],
)
def test_a_contradiction_is_refused(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"HEADRACE_{name}", value)
    with pytest.raises(ConfigError) as refused:
        load(LakeProcessSettings)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "variables",
    [
        {"LAKE__PATH": "/x/lake", "LAKE__CHECKPOINT": "/x/lake-checkpoint"},
        {"LAKE__TRIGGER": "0"},
        {"LAKE__BATCH_RECORDS": "1"},
        {"LAKE__QUARANTINE": '{"default": "skip", "oversized": "log", "invalid_utf8": "suspend"}'},
        {"LISTEN__NONSENSE": "a section that this process lacks"},
    ],
)
def test_what_only_looks_like_one_is_not(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"HEADRACE_{name}", value)
    load(LakeProcessSettings)


def test_a_local_folder_becomes_absolute_and_a_url_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert location("lake/") == str(tmp_path / "lake")
    assert location("s3a://bucket/lake/") == "s3a://bucket/lake"


def test_the_process_exits_with_78_and_a_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headrace_lake", "--once"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HEADRACE_LAKE__TRIGGER": "often"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == EXIT_CONFIG
    assert done.stderr.startswith("headrace_lake: HEADRACE_LAKE__TRIGGER: ")
    assert len(done.stderr.splitlines()) == 1
