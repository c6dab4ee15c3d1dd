"""What docs/kubernetes.md tells a user to set is what the chart takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.helm.chart import CHART, ROOT, rendered

pytestmark = [pytest.mark.requires("helm"), pytest.mark.long]

PAGE: Final = (ROOT / "docs" / "kubernetes.md").read_text()
VALUES: Final[Any] = yaml.safe_load((CHART / "values.yaml").read_text())
BLOCKS: Final = [
    block
    for found in re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", PAGE, re.MULTILINE)
    if isinstance(block := yaml.safe_load(found.replace("…", "0" * 64)), dict)
]
"""The page's values; its commands are no mappings. A digest is not written out there."""


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: "-".join(block))
def test_the_chart_takes_the_pages_values(block: Any, tmp_path: Path) -> None:
    (file := tmp_path / "values.yaml").write_text(yaml.safe_dump(block))
    assert rendered("--values", str(file))


def test_every_value_that_the_page_names_is_one() -> None:
    named = {
        path for path in re.findall(r"`([a-zA-Z]+(?:\.[a-zA-Z_]+)+)\b[^`/]*`", PAGE) if path.split(".")[0] in VALUES
    }
    assert len(named) > 20
    assert len(BLOCKS) >= 5
    assert [path for path in sorted(named) if not is_value(path.split("."))] == []


def is_value(path: list[str]) -> bool:
    """Whether the values have it, or a mapping that is empty until a user fills it."""
    values = VALUES
    if path[0] == "receivers":
        values, path = {"secrets": {}, **VALUES["receiverDefaults"], **VALUES["receivers"].get(path[1], {})}, path[2:]
    for name in path:
        if values == {}:
            return True
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True
