"""The time index: TimeIndexTest. Base 45, room for 30 entries; entry i (from 1) is (10 i, 45 + 10 i)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.errors import CorruptIndexError, IndexFullError, InvalidArgumentError, InvalidOffsetError
from tidelog.formats.time_index import TimeIndex, TimestampOffset


@pytest.fixture
def index() -> TimeIndex:
    return TimeIndex.create(45, 30 * 12)


def fill(index: TimeIndex, entries: int = 29) -> None:
    for i in range(1, entries + 1):
        index.maybe_append(10 * i, 45 + 10 * i)


def reopened(index: TimeIndex, tmp_path: Path, tail: bytes = b"") -> TimeIndex:
    path = tmp_path / "00000000000000000045.timeindex"
    path.write_bytes(index.to_bytes() + tail)
    return TimeIndex.open(path, index.base_offset)


def test_look_up(index: TimeIndex, tmp_path: Path) -> None:
    """TimeIndexTest.testLookUp"""
    assert index.lookup(100) == (-1, 45)
    fill(index)
    for looked_up in (index, reopened(index, tmp_path)):
        assert looked_up.lookup(9) == (-1, 45)
        assert looked_up.lookup(25) == (20, 65)
        assert looked_up.lookup(30) == (30, 75)


def test_entry(index: TimeIndex) -> None:
    """TimeIndexTest.testEntry"""
    fill(index)
    assert [index.entry(slot) for slot in range(4)] == [(10, 55), (20, 65), (30, 75), (40, 85)]


def test_entry_overflow(index: TimeIndex) -> None:
    """TimeIndexTest.testEntryOverflow"""
    with pytest.raises(InvalidArgumentError):
        index.entry(0)


def test_truncate(index: TimeIndex) -> None:
    """TimeIndexTest.testTruncate"""
    fill(index)
    index.truncate()
    assert index.entries == 0
    fill(index)
    index.truncate_to(10 + 45)
    assert index.entries == 0
    fill(index)
    index.truncate_to(56)
    assert index.last_entry == (10, 55)


def test_append(index: TimeIndex) -> None:
    """TimeIndexTest.testAppend"""
    fill(index)
    with pytest.raises(IndexFullError):
        index.maybe_append(10000, 1000)
    with pytest.raises(InvalidOffsetError):
        index.maybe_append(10000, 280, skip_full_check=True)
    with pytest.raises(InvalidArgumentError):
        index.maybe_append(280, 1000, skip_full_check=True)
    index.maybe_append(290, 335, skip_full_check=True)
    assert index.entries == 29
    index.maybe_append(10000, 1000, skip_full_check=True)
    assert index.last_entry == (10000, 1000)


def test_the_largest_timestamp_starts_at_minus_one(index: TimeIndex) -> None:
    """KIP-33: so a record of the first millisecond of 1970 has an entry, one without a timestamp has none."""
    index.maybe_append(-1, 45)
    assert index.entries == 0
    index.maybe_append(0, 46)
    index.maybe_append(0, 47)
    assert [index.entry(slot) for slot in range(index.entries)] == [(0, 46)]


def test_sanity_check(index: TimeIndex, tmp_path: Path) -> None:
    """TimeIndexTest.testSanityCheck"""
    fill(index)
    index.sanity_check()
    reopened(index, tmp_path).sanity_check()
    with pytest.raises(CorruptIndexError, match="base"):
        TimeIndex.from_bytes(45, entries_of_45(10, 45, 20, 44)).sanity_check()
    with pytest.raises(CorruptIndexError, match="timestamps of a time index decrease"):
        TimeIndex.from_bytes(45, entries_of_45(20, 55, 10, 65)).sanity_check()
    with pytest.raises(CorruptIndexError, match="353 bytes"):
        reopened(index, tmp_path, b"\1" * 5).sanity_check()


def entries_of_45(*fields: int) -> bytes:
    pairs = zip(fields[::2], fields[1::2], strict=True)
    return b"".join(time.to_bytes(8, "big") + (offset - 45).to_bytes(4, "big", signed=True) for time, offset in pairs)


def test_is_full(index: TimeIndex) -> None:
    """TimeIndexTest.testIsFull"""
    assert not index.is_full
    fill(index, 28)
    assert not index.is_full
    index.maybe_append(290, 335)
    assert index.is_full


def test_last_entry(index: TimeIndex) -> None:
    """TimeIndexTest.testLastEntry"""
    assert index.last_entry == TimestampOffset(-1, 45)
    index.maybe_append(1, 46)
    assert index.last_entry == (1, 46)


def test_resize(index: TimeIndex) -> None:
    """TimeIndexTest.testResize"""
    assert not index.resize(30 * 12)
    assert index.resize(15 * 12)
    assert index.resize(30 * 12)
    fill(index, 3)
    assert index.trim_to_valid_size()
    assert index.max_entries == index.entries == 3


def test_entry_size() -> None:
    """TimeIndexTest.testEntrySize"""
    assert TimeIndex.entry_bytes == 12


def test_parse_entry(index: TimeIndex) -> None:
    """TimeIndexTest.testParseEntry"""
    index.maybe_append(1, 46)
    assert index.to_bytes() == bytes.fromhex("0000000000000001 00000001")
    assert TimeIndex.from_bytes(45, index.to_bytes()).entry(0) == (1, 46)


def test_no_entry_without_a_timestamp(index: TimeIndex) -> None:
    """-1 never makes an entry; 0 does, as the first (spec §2.5)."""
    index.maybe_append(-1, 50)
    assert index.entries == 0
    index.maybe_append(0, 45)
    assert index.last_entry == (0, 45)


@pytest.mark.parametrize("entries", [0, 1, 2, 15, 29])
@pytest.mark.parametrize("zero_slots", [1, 2, 400])
def test_zero_tail_of_a_live_index(index: TimeIndex, tmp_path: Path, entries: int, zero_slots: int) -> None:
    fill(index, entries)
    live = reopened(index, tmp_path, bytes(12 * zero_slots))
    assert live.entries == entries
    assert live.lookup(10_000) == index.lookup(10_000)


def test_a_true_zero_in_the_first_slot(index: TimeIndex, tmp_path: Path) -> None:
    index.maybe_append(0, 45)
    index.maybe_append(7, 50)
    for tail in (b"", bytes(12), bytes(1200)):
        assert reopened(index, tmp_path, tail).entries == 2
