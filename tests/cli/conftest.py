"""A stack that seems to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from headrace_cli.stack.state import StateFolder

Running = Callable[..., StateFolder]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """Writes the record of a stack, whose supervisor is this process; its folder."""
    state = StateFolder(tmp_path / "state")
    state.make()

    def write(**record: object) -> StateFolder:
        state.write_record(record)
        return state

    with state.held():
        yield write
