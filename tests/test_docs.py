"""The generated pages are what the declarations say, and the README names only what exists."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import yaml
from headrace_common.metrics import LakeMetrics

ROOT = Path(__file__).parent.parent


def _pages() -> dict[Path, object]:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PAGES


@pytest.mark.parametrize("path", sorted(_pages()), ids=lambda path: path.name)
def test_generated_pages_are_up_to_date(path):
    assert path.read_text() == _pages()[path](), "run: python docs/generate.py"


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *sorted(p.name for p in (ROOT / "docs").glob("*.md"))]
)
def test_links_lead_somewhere(page):
    path = next(p for p in (ROOT / page, ROOT / "docs" / page) if p.exists())
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text())
    missing = [target for target in targets if not (path.parent / target).exists()]
    assert missing == []


def test_alerts_are_about_metrics_that_exist():
    document = yaml.safe_load((ROOT / "docs" / "alerts.yml").read_text())
    rules = [rule for group in document["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 5
    kinds = {name: kind for name, kind, _ in LakeMetrics().table()}
    for rule in rules:
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in {"warning", "critical"}
        named = re.findall(r"headrace_\w+", rule["expr"])
        assert named
        for name in named:
            base = name.removesuffix("_bucket")
            assert base in kinds, f"{rule['alert']}: there is no {name}"
            assert (kinds[base] == "histogram") == (base != name), rule["alert"]
