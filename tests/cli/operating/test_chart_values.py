"""`headrace validate --chart-values`: the chart's values, judged as the environment of each part."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from headrace_cli.errors import CommandError
from headrace_cli.operating.check import chart
from headrace_cli.operating.check.validate import ValidateOptions, validate

from tests.helm.chart import CI, SCENARIOS

HELM = [pytest.mark.requires("helm"), pytest.mark.long]


def judged(folder: Path, capfd: pytest.CaptureFixture[str], *texts: str, **options: Any) -> tuple[int, list[Any]]:
    """The exit status, and all that was found."""
    paths = []
    for number, text in enumerate(texts):
        paths.append(folder / f"{number}.yaml")
        paths[-1].write_text(text)
    status = validate(ValidateOptions(chart_values=paths, as_json=True, **options))
    return status, json.loads(capfd.readouterr().out)["checks"]


def wrong(found: list[Any]) -> list[tuple[str, str]]:
    return [(each["reason"], each["next"]) for each in found if each["verdict"] == "wrong"]


class TestWithHelm:
    pytestmark = HELM

    @pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "defaults"])
    def test_every_scenario_of_the_chart_is_valid(self, name: str, capfd: pytest.CaptureFixture[str]) -> None:
        assert validate(ValidateOptions(chart_values=[CI / f"{name}-values.yaml"])) == 0, capfd.readouterr().out

    def test_wrong_settings_have_the_sentence_of_the_environment(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HEADRACE_LIMITS__CONNECTIONS", "many")  # the machine's environment is not asked
        before = dict(os.environ)
        status, found = judged(
            tmp_path,
            capfd,
            "receiverDefaults: {settings: {limits: {frame_byts: 5}}}",
            "receivers: {lumberjack: {settings: {lumberjack: {window_events: 100000000}}}}",
            "kafka: {settings: {ack_deadline: -1}}\nlake: {settings: {lake: {horizn: 5}}}",
        )
        assert status == 78
        assert os.environ == before
        said = dict(wrong(found))
        name = "HEADRACE_LIMITS__FRAME_BYTS: there is no such setting; did you mean HEADRACE_LIMITS__FRAME_BYTES?"
        assert said[name] == "in the settings of receivers.courier, or receiverDefaults: {limits: {frame_byts: …}}"
        assert any(reason.startswith("HEADRACE_LUMBERJACK__WINDOW_EVENTS: expected ") for reason in said)
        assert "in kafka.settings: ack_deadline" in said.values()
        assert any("did you mean HEADRACE_LAKE__HORIZON" in reason for reason in said)
        assert len(said) == len(wrong(found)) == 4  # what parts share is said once

    @pytest.mark.parametrize(
        ("values", "sentence"),
        [
            ("lake: {settings: {lake: {path: s3a://b/lake}}}", "lake.settings.lake: path and checkpoint go together."),
            ("receivers: {forward: {replica: 3}}", "'replica' not allowed"),
            ("receivers: [", "yaml"),
        ],
    )
    def test_what_the_chart_itself_refuses(
        self, values: str, sentence: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        status, found = judged(tmp_path, capfd, values)
        assert status == 78
        (only,) = wrong(found)
        assert sentence in only[0]
        assert "\n" not in only[0]

    def test_only_some_parts_and_those_that_run(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        values = "receivers: {lumberjack: {settings: {lumberjack: {window_events: 0}}}, courier: {enabled: false}}"
        status, found = judged(tmp_path, capfd, values, parts=["courier", "lake"])
        assert [each["reason"] for each in found[:2]] == ["these values run no courier", "of lake"]
        assert status == 78  # the chart's schema refuses them all the same


def test_what_is_missing_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandError, match="name one of them"):
        validate(ValidateOptions(chart_values=[tmp_path / "x"], config=tmp_path / "y"))
    monkeypatch.setattr(chart.shutil, "which", lambda name: None)
    with pytest.raises(CommandError, match="helm is missing"):
        validate(ValidateOptions(chart_values=[tmp_path / "x"]))
    monkeypatch.setattr(chart.shutil, "which", lambda name: "/bin/true")
    with pytest.raises(CommandError, match="no such file") as raised:
        validate(ValidateOptions(chart_values=[tmp_path / "x"]))
    assert raised.value.status == 2
