"""The native core in tests: which of the two cores is asked, and that both say the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, ParamSpec

import pytest
from headrace_common.record import native
from headrace_common.session.interface import ByteSession

from tests.driving import feed

P = ParamSpec("P")

CORES: Final = ("python", "native")

needs_native = pytest.mark.skipif(native.NATIVE is None, reason="needs the native core, which is not built here")


@contextmanager
def using(name: str) -> Iterator[None]:
    """Within it, this core is asked. Skips the test where it is not built."""
    if name == "native" and native.NATIVE is None:
        pytest.skip("needs the native core, which is not built here")
    before = native.core
    native.choose(native.REQUIRE if name == "native" else native.OFF)
    try:
        yield
    finally:
        native.core = before


def the_same(drive: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Any:
    """What `drive` says came of something, which is the same with each core."""
    with using("python"):
        expected = drive(*args, **kwargs)
    if native.NATIVE is not None:
        with using("native"):
            found = drive(*args, **kwargs)
        assert found.comparable() == expected.comparable(), "the native core makes something else than Python"
    return expected


def calls(driven: ByteSession, data: bytes) -> int:
    """In how many calls the native core makes what comes of `data`; what it leaves to Python is one each."""
    with using("native"):
        feed(driven, data)
        return sum(bool(run) for frame in driven.frames() for run in frame.runs())
