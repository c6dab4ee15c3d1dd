"""An ordering key's partition is the one that Kafka's own clients choose for it."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import DefaultPartitioner
from headrace_common.publishing.partitions import CACHED_KEY, partition_of
from hypothesis import given
from hypothesis import strategies as st


@given(st.binary(min_size=1, max_size=2 * CACHED_KEY), st.integers(1, 200))
def test_as_kafkas_clients(key: bytes, partitions: int) -> None:
    everywhere = list(range(partitions))
    assert partition_of(key, partitions) == DefaultPartitioner()(key, everywhere, everywhere)


@pytest.mark.parametrize(
    ("key", "partition"), [(b"", 9), (b"checkout-production", 7), ("Bücher".encode(), 7), (b"a", 4)]
)
def test_it_never_changes(key: bytes, partition: int) -> None:
    """Records that are there already were placed by it."""
    assert partition_of(key, 12) == partition
