"""What needs Docker is `long`: the quick tier shows the same receivers as processes."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
BUILDING = 1800
"""Seconds for a test that may be the first to need images. Not a guess about speed: each step ends as soon as it can."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == FOLDER and item.get_closest_marker("requires"):
            item.add_marker("long")
            item.add_marker(pytest.mark.timeout(BUILDING))
