"""The map of one compaction pass (OffsetMapTest)."""

from __future__ import annotations

import pytest

from tidelog.errors import IndexFullError, InvalidArgumentError
from tidelog.storage.compaction.skimpy_offset_map import SkimpyOffsetMap

MEMORY_BYTES = 4096


def filled() -> tuple[SkimpyOffsetMap, int]:
    """A map in which every slot is in use, and the last key."""
    offset_map = SkimpyOffsetMap(MEMORY_BYTES)
    key = 37
    while offset_map.size < offset_map.slots:
        offset_map.put(b"%d" % key, key)
        key += 1
    return offset_map, key - 1


@pytest.mark.parametrize("items", [10, 100, 1000, 5000])
def test_put_and_get(items: int) -> None:
    """OffsetMapTest.testBasicValidation."""
    offset_map = SkimpyOffsetMap(items * 48)
    for i in range(items):
        offset_map.put(b"%d" % i, i)
    assert [offset_map.get(b"%d" % i) for i in range(items)] == list(range(items))


def test_clear() -> None:
    """OffsetMapTest.testClear."""
    offset_map = SkimpyOffsetMap(MEMORY_BYTES)
    for i in range(10):
        offset_map.put(b"%d" % i, i)
    offset_map.clear()
    assert {offset_map.get(b"%d" % i) for i in range(10)} == {-1}
    assert (offset_map.size, offset_map.latest_offset) == (0, -1)


def test_full() -> None:
    """OffsetMapTest.testGetWhenFull."""
    offset_map, last = filled()
    assert offset_map.size == MEMORY_BYTES // 24
    assert offset_map.get(b"%d" % (last + 1)) == -1
    assert offset_map.get(b"%d" % last) == last
    with pytest.raises(IndexFullError):
        offset_map.put(b"one more", 1)


def test_latest_offset() -> None:
    """OffsetMapTest.testLatestOffset, testUpdateLatestOffset: the map ends where it is told to, its keys stay."""
    offset_map, last = filled()
    assert offset_map.latest_offset == last
    offset_map.latest_offset = 40
    assert (offset_map.latest_offset, offset_map.get(b"40"), offset_map.get(b"%d" % last)) == (40, 40, last)


def test_utilization() -> None:
    """OffsetMapTest.testUtilization."""
    offset_map = SkimpyOffsetMap(MEMORY_BYTES)
    assert offset_map.utilization == 0.0
    for i in range(offset_map.slots):
        offset_map.put(b"%d" % i, i)
        assert offset_map.utilization == (i + 1) / offset_map.slots


def test_as_many_keys_as_in_kafka() -> None:
    """24 bytes a key; a pass fills 0.9 of them."""
    assert SkimpyOffsetMap(24 * 1000).max_entries == 900


@pytest.mark.parametrize("memory_bytes", [24, 23, 0])
def test_too_small(memory_bytes: int) -> None:
    with pytest.raises(InvalidArgumentError):
        SkimpyOffsetMap(memory_bytes)
