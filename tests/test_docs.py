"""The generated pages are what the declarations say, and the README names only what exists."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

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
