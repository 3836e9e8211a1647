"""The offset index: OffsetIndexTest. Base 45, room for 30 entries."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tidelog.errors import CorruptIndexError, IndexFullError, InvalidArgumentError, InvalidOffsetError, OffsetOverflowError
from tidelog.formats.offset_index import OffsetIndex, OffsetPosition


@pytest.fixture
def index() -> OffsetIndex:
    return OffsetIndex.create(45, 30 * 8)


def reopened(index: OffsetIndex, tmp_path: Path, tail: bytes = b"") -> OffsetIndex:
    path = tmp_path / "00000000000000000045.index"
    path.write_bytes(index.to_bytes() + tail)
    return OffsetIndex.open(path, index.base_offset)


def test_random_lookup(index: OffsetIndex, tmp_path: Path) -> None:
    """OffsetIndexTest.randomLookupTest"""
    assert index.lookup(92) == (45, 0)
    chance = random.Random(4)
    offsets = sorted(chance.sample(range(46, 400), 30))
    positions = sorted(chance.sample(range(1, 10_000), 30))
    entries = [OffsetPosition(*pair) for pair in zip(offsets, positions, strict=True)]
    for entry in entries:
        index.append(*entry)
    for looked_up in (index, reopened(index, tmp_path)):
        for target in range(40, 410):
            below = [entry for entry in entries if entry.offset <= target]
            assert looked_up.lookup(target) == (below[-1] if below else (45, 0))


def test_lookup_extreme_cases(index: OffsetIndex) -> None:
    """OffsetIndexTest.lookupExtremeCases"""
    assert index.lookup(45) == (45, 0)
    for i in range(30):
        index.append(45 + i + 1, i)
    assert index.lookup(45) == (45, 0)
    assert index.lookup(45 + 30) == (75, 29)


def test_entry(index: OffsetIndex) -> None:
    """OffsetIndexTest.testEntry"""
    entries = [(46, 0), (47, 13), (48, 29), (49, 45)]
    for entry in entries:
        index.append(*entry)
    assert [index.entry(slot) for slot in range(4)] == entries


def test_entry_overflow(index: OffsetIndex) -> None:
    """OffsetIndexTest.testEntryOverflow"""
    with pytest.raises(InvalidArgumentError):
        index.entry(0)


def test_append_too_many(index: OffsetIndex) -> None:
    """OffsetIndexTest.appendTooMany"""
    for i in range(30):
        assert not index.is_full
        index.append(45 + i + 1, i)
    assert index.is_full
    with pytest.raises(IndexFullError):
        index.append(76, 30)


def test_append_out_of_order(index: OffsetIndex) -> None:
    """OffsetIndexTest.appendOutOfOrder"""
    index.append(51, 0)
    with pytest.raises(InvalidOffsetError):
        index.append(50, 1)
    with pytest.raises(OffsetOverflowError):
        index.append(45 + 2**31, 1)


def test_fetch_upper_bound_offset(index: OffsetIndex) -> None:
    """OffsetIndexTest.testFetchUpperBoundOffset"""
    first, second, third, fourth = (OffsetPosition(*pair) for pair in ((45, 0), (46, 10), (47, 23), (48, 37)))
    assert index.fetch_upper_bound_offset(first, 5) is None
    for entry in (first, second, third, fourth):
        index.append(*entry)
    assert index.fetch_upper_bound_offset(first, 5) == second
    assert index.fetch_upper_bound_offset(first, 10) == second
    assert index.fetch_upper_bound_offset(first, 23) == third
    assert index.fetch_upper_bound_offset(first, 22) == third
    assert index.fetch_upper_bound_offset(second, 24) == fourth
    assert index.fetch_upper_bound_offset(fourth, 1) is None
    assert index.fetch_upper_bound_offset(first, 200) is None


def test_reopen(index: OffsetIndex, tmp_path: Path) -> None:
    """OffsetIndexTest.testReopen"""
    index.append(51, 0)
    index.append(52, 1)
    for again in (reopened(index, tmp_path), OffsetIndex.from_bytes(45, index.to_bytes())):
        assert (again.lookup(51), again.lookup(52)) == ((51, 0), (52, 1))
        assert (again.last_offset, again.entries, again.max_entries) == (52, 2, 2)
        with pytest.raises(IndexFullError):
            again.append(53, 2)


def test_truncate() -> None:
    """OffsetIndexTest.truncate"""
    index = OffsetIndex.create(0, 10 * 8)
    for i in range(1, 10):
        index.append(i, i)
    index.truncate_to(12)
    assert index.lookup(10) == (9, 9) and index.last_offset == 9
    index.append(10, 10)
    index.truncate_to(10)
    assert index.lookup(10) == (9, 9) and index.last_offset == 9
    index.append(10, 10)
    index.truncate_to(9)
    assert index.lookup(10) == (8, 8) and index.last_offset == 8
    index.append(9, 9)
    index.truncate_to(5)
    assert index.lookup(10) == (4, 4) and index.last_offset == 4
    index.append(5, 5)
    index.truncate()
    assert index.entries == 0
    index.append(0, 0)


def test_sanity_last_offset_equal_to_base_offset(index: OffsetIndex, tmp_path: Path) -> None:
    """OffsetIndexTest.testSanityLastOffsetEqualToBaseOffset"""
    index.append(45, 1)
    index.sanity_check()
    reopened(index, tmp_path).sanity_check()


def test_sanity_check(tmp_path: Path) -> None:
    """A last offset below the base, or a length that is no multiple of 8, is corrupt (spec §2.7)."""
    below = OffsetIndex.from_bytes(45, bytes.fromhex("ffffffff 00000001"))
    with pytest.raises(CorruptIndexError):
        below.sanity_check()
    with pytest.raises(CorruptIndexError, match="9 bytes"):
        reopened(OffsetIndex.from_bytes(45, bytes.fromhex("00000001 00000001")), tmp_path, b"\1").sanity_check()


@pytest.mark.parametrize("entries", [0, 1, 2, 7, 29])
@pytest.mark.parametrize("zero_slots", [1, 2, 3, 500])
def test_zero_tail_of_a_live_index(index: OffsetIndex, tmp_path: Path, entries: int, zero_slots: int) -> None:
    for i in range(entries):
        index.append(45 + i + 1, i + 1)
    live = reopened(index, tmp_path, bytes(8 * zero_slots))
    assert (live.entries, live.max_entries) == (entries, entries + zero_slots)
    assert live.to_bytes() == index.to_bytes()


def test_reading_takes_no_entries(index: OffsetIndex, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError):
        reopened(index, tmp_path, bytes(16)).append(50, 1)
    index.append(46, 1)
    with pytest.raises(InvalidArgumentError):
        reopened(index, tmp_path).truncate()


def test_only_a_few_entries_are_read(tmp_path: Path) -> None:
    """3,500 live partitions have 35 GB of preallocated indexes: opening one reads a few dozen bytes of it."""
    path = tmp_path / "00000000000000000000.index"
    index = OffsetIndex.create(0, 8 * 100_000)
    for i in range(1000):
        index.append(i + 1, i * 4096 + 1)
    path.write_bytes(index.to_bytes() + bytes(10485760 - 8000))
    live = OffsetIndex.open(path, 0)
    assert live.lookup(500) == (500, 499 * 4096 + 1)
    assert live.bytes_read < 8 * 50
