"""The native core in tests: which of the two cores is asked, and that both say the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, ParamSpec, TypeVar

import pytest
from headrace_common.record import native

P = ParamSpec("P")
T = TypeVar("T")

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


def with_both(metafunc: pytest.Metafunc) -> None:
    """Runs a test once with each core, by the fixture `core`; but for tests that start processes, or compare the two."""
    if metafunc.module.__name__.endswith(".test_native"):
        return
    if "core" in metafunc.fixturenames and not {"start", "kafka", "own_kafka"} & set(metafunc.fixturenames):
        metafunc.parametrize("core", CORES, indirect=True, scope="module")


@pytest.fixture(scope="module", autouse=True)
def core(request: pytest.FixtureRequest) -> Iterator[None]:
    """The core that is asked. For the `conftest` of a protocol, beside `with_both`."""
    with using(getattr(request, "param", "python")):
        yield


def the_same(drive: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Any:
    """What `drive` says came of something, which is the same with each core."""
    with using("python"):
        expected = drive(*args, **kwargs)
    if native.NATIVE is not None:
        with using("native"):
            found = drive(*args, **kwargs)
        assert found.comparable() == expected.comparable(), "the native core makes something else than Python"
    return expected
