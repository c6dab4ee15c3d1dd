"""The clocks of the tests here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The coroutines of a module that names a `LOOP` run in one of that kind."""
    assert isinstance(item, pytest.Function)
    return {"loop": getattr(item.module, "LOOP", asyncio.SelectorEventLoop)}
