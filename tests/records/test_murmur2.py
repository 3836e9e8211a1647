"""Keys go to the partitions to which Kafka's own producers send them."""

from __future__ import annotations

from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""Values that Kafka's UtilsTest.testMurmur2 states, as Java's signed int."""


@pytest.mark.parametrize("data", VECTORS)
def test_murmur2(kernel: ModuleType, data: bytes) -> None:
    """UtilsTest.testMurmur2"""
    assert kernel.murmur2(data) == VECTORS[data] % 2**32


def reference(data: bytes) -> int:
    """Murmur2 as its author defines it, with Kafka's seed, a word at a time."""
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * 0x5BD1E995 % 2**32
        k = (k ^ k >> 24) * 0x5BD1E995 % 2**32
        h = (h * 0x5BD1E995 ^ k) % 2**32
    if data[whole:]:
        h = (h ^ int.from_bytes(data[whole:], "little")) * 0x5BD1E995 % 2**32
    h = (h ^ h >> 13) * 0x5BD1E995 % 2**32
    return h ^ h >> 15


@given(keys=st.lists(st.none() | st.binary(max_size=40), max_size=20), partitions=st.integers(1, 2**31 - 1))
def test_partitions(kernel: ModuleType, keys: list[bytes | None], partitions: int) -> None:
    """Positive murmur2 modulo partitions; a null key has none of its own."""
    from tidelog.records.builder import binary_column

    found = kernel.murmur2_partitions(binary_column(keys), partitions)
    assert found == array("i", [-1 if key is None else (reference(key) & 0x7FFFFFFF) % partitions for key in keys])


def test_no_partitions(kernel: ModuleType) -> None:
    from tidelog.records.builder import binary_column

    with pytest.raises(ValueError, match="0 partitions"):
        kernel.murmur2_partitions(binary_column([]), 0)
