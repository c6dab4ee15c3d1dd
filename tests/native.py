"""The native core in tests: which of the two cores is asked, and that both say the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import pytest
from headrace_common.record import native
from headrace_common.session.interface import ByteSession

from tests.driving import Outcome, feed

T = TypeVar("T", bound=Outcome)

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


def compared(drive: Callable[..., T]) -> Callable[..., T]:
    """Drives with each core: the same comes of any pieces."""

    def both(pieces: Iterable[bytes], **given: Any) -> T:
        pieces = list(pieces)
        with using("python"):
            expected = drive(pieces, **given)
        if native.NATIVE is not None:
            with using("native"):
                found = drive(pieces, **given)
            assert found.comparable() == expected.comparable(), "the native core makes something else than Python"
        return expected

    return both


def calls(driven: ByteSession, data: bytes) -> int:
    """In how many calls the native core makes what comes of `data`; what it leaves to Python is one each."""
    with using("native"):
        feed(driven, data)
        return sum(bool(run) for frame in driven.frames() for run in frame.runs())
