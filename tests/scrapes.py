"""What alerting rules say of pages that real processes have given at /metrics: `promtool` evaluates them over made-up hours."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml
from prometheus_client.parser import text_string_to_metric_families

RULES: Final = Path(__file__).parents[1] / "deploy/helm/headrace/files/alerts.yml"
MINUTES: Final = 30
"""For so long each page is what Prometheus hears."""


@dataclass(frozen=True)
class Page:
    """The text of /metrics; empty: nobody answers. `at`: when it was asked, in Unix seconds."""

    text: str
    at: float = field(default_factory=time.time)


NOBODY: Final = Page("")


def firing(groups: Sequence[str], job: str, pages: Sequence[Page], folder: Path) -> set[str]:
    """The alerts of these groups of the chart's rules that fire while the last page stands: soon, or at its end."""
    document = yaml.safe_load(RULES.read_text())
    chosen = [group for group in document["groups"] if group["name"] in groups]
    (folder / "rules.yml").write_text(yaml.safe_dump({"groups": chosen}))
    names = [rule["alert"] for group in chosen for rule in group["rules"]]
    end = len(pages) * MINUTES
    silent = [
        {
            "expr": f"group(ALERTS{{alertname='{name}', alertstate='firing'}})",
            "eval_time": f"{minute}m",
            "exp_samples": [],
        }
        for name in names
        for minute in (end - MINUTES + 5, end - 1)
    ]
    test = {"interval": "1m", "input_series": list(_series(job, pages)), "promql_expr_test": silent}
    cases = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]}
    (folder / "cases.yml").write_text(yaml.safe_dump(cases))
    done = subprocess.run(["promtool", "test", "rules", "cases.yml"], cwd=folder, capture_output=True, text=True)
    told = done.stdout + done.stderr
    assert done.returncode == 0 or "exp:" in told, told
    return {name for name in names if f"alertname='{name}'" in told}


def _series(job: str, pages: Sequence[Page]) -> Iterator[dict[str, str]]:
    """A series for each that any page has. Times are counted from when their page was asked."""
    target = f'job="{job}", instance="a", namespace="n", release="r"'
    found = [_samples(page, number * MINUTES * 60) for number, page in enumerate(pages)]
    for name in sorted({name for samples in found for name in samples}):
        held = " ".join(f"{samples.get(name, '_')}x{MINUTES - 1}" for samples in found)
        yield {"series": name % target, "values": held}
    up = " ".join(f"{int(bool(page.text))}x{MINUTES - 1}" for page in pages)
    yield {"series": f"up{{{target}}}", "values": up}


def _samples(page: Page, start: int) -> dict[str, str]:
    made = {}
    for family in text_string_to_metric_families(page.text):
        for sample in family.samples:
            value = sample.value
            if "timestamp_seconds" in sample.name and value > 0:
                value += start - page.at
            labels = "".join(f', {name}="{text}"' for name, text in sample.labels.items()).replace("%", "%%")
            made[f"{sample.name}{{%s{labels}}}"] = f"{value:.6f}"
    return made
