"""The `.index` and `.timeindex` as files: OffsetIndexTest and TimeIndexTest where they are about files, full disks, and a model.

Base 45, room for 30 entries. What an entry means, and when one is accepted, is tested with `formats.offset_index` and
`formats.time_index`; here each look-up is asked of a live index, and of one that rests in its file.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.examples import examples
from tests.fields import check_fields
from tests.storage.segment_files import full_disk, open_descriptors, short_writes
from tidelog.errors import (
    CorruptIndexError,
    IndexFullError,
    InvalidArgumentError,
    InvalidOffsetError,
    OffsetOverflowError,
    StorageError,
)
from tidelog.formats.offset_index import OffsetPosition
from tidelog.storage.segment import index_cache
from tidelog.storage.segment.offset_index_file import OffsetIndexFile
from tidelog.storage.segment.time_index_file import TimeIndexFile

BASE = 45
OFFSET_BYTES = 30 * 8
TIME_BYTES = 30 * 12

_Index = TypeVar("_Index", OffsetIndexFile, TimeIndexFile)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000045.index"


@pytest.fixture
def offset_index(path: Path) -> OffsetIndexFile:
    return OffsetIndexFile(path, BASE, OFFSET_BYTES)


@pytest.fixture
def time_index(path: Path) -> TimeIndexFile:
    return TimeIndexFile(path, BASE, TIME_BYTES)


def same(index: _Index) -> _Index:
    return index


def at_rest(index: _Index) -> _Index:
    index.trim_to_valid_size()
    index.rest()
    return index


def reopened(index: _Index) -> _Index:
    index.close()
    return type(index)(index.path, index.base_offset, index.max_index_bytes)


def copied_live(index: _Index) -> _Index:
    """As a copy of the folder has it, or a crash leaves it: a tail of zeros up to what the index could hold."""
    index.flush()
    index.close_handlers()
    return type(index)(index.path, index.base_offset, index.max_index_bytes)


every_state = pytest.mark.parametrize("state", [same, at_rest, reopened, copied_live])


class TestOffsetIndex:
    @every_state
    def test_random_lookup(self, offset_index: OffsetIndexFile, state: Callable[[OffsetIndexFile], OffsetIndexFile]) -> None:
        """OffsetIndexTest.randomLookupTest"""
        assert offset_index.lookup(92) == (45, 0)
        chance = random.Random(4)
        offsets, positions = sorted(chance.sample(range(46, 400), 30)), sorted(chance.sample(range(1, 10_000), 30))
        entries = [OffsetPosition(*pair) for pair in zip(offsets, positions, strict=True)]
        for entry in entries:
            offset_index.append(*entry)
        index = state(offset_index)
        for target in range(40, 410):
            below = [entry for entry in entries if entry.offset <= target]
            assert index.lookup(target) == (below[-1] if below else (45, 0))

    def test_lookup_extreme_cases(self, offset_index: OffsetIndexFile) -> None:
        """OffsetIndexTest.lookupExtremeCases"""
        assert offset_index.lookup(45) == (45, 0)
        for i in range(30):
            offset_index.append(45 + i + 1, i)
        assert offset_index.lookup(45) == (45, 0)
        assert offset_index.lookup(75) == (75, 29)

    @every_state
    def test_entry(self, offset_index: OffsetIndexFile, state: Callable[[OffsetIndexFile], OffsetIndexFile]) -> None:
        """OffsetIndexTest.testEntry, testEntryOverflow"""
        entries = [(46, 0), (47, 13), (48, 29), (49, 45)]
        for entry in entries:
            offset_index.append(*entry)
        index = state(offset_index)
        assert [index.entry(slot) for slot in range(index.entries)] == entries
        with pytest.raises(InvalidArgumentError):
            index.entry(4)

    def test_append_too_many(self, offset_index: OffsetIndexFile) -> None:
        """OffsetIndexTest.appendTooMany"""
        for i in range(30):
            assert not offset_index.is_full
            offset_index.append(45 + i + 1, i)
        assert offset_index.is_full
        with pytest.raises(IndexFullError):
            offset_index.append(76, 30)
        assert offset_index.entries == offset_index.max_entries == 30

    def test_append_out_of_order(self, offset_index: OffsetIndexFile) -> None:
        """OffsetIndexTest.appendOutOfOrder"""
        offset_index.append(51, 0)
        for offset in (50, 51):
            with pytest.raises(InvalidOffsetError):
                offset_index.append(offset, 1)
        with pytest.raises(OffsetOverflowError):
            offset_index.append(45 + 2**31, 1)
        assert offset_index.entries == 1

    @every_state
    def test_fetch_upper_bound_offset(
        self, offset_index: OffsetIndexFile, state: Callable[[OffsetIndexFile], OffsetIndexFile]
    ) -> None:
        """OffsetIndexTest.testFetchUpperBoundOffset"""
        first, second, third, fourth = (OffsetPosition(*pair) for pair in ((45, 0), (46, 10), (47, 23), (48, 37)))
        assert offset_index.fetch_upper_bound_offset(first, 5) is None
        for entry in (first, second, third, fourth):
            offset_index.append(*entry)
        index = state(offset_index)
        assert index.fetch_upper_bound_offset(first, 5) == second
        assert index.fetch_upper_bound_offset(first, 10) == second
        assert index.fetch_upper_bound_offset(first, 23) == third
        assert index.fetch_upper_bound_offset(first, 22) == third
        assert index.fetch_upper_bound_offset(second, 24) == fourth
        assert index.fetch_upper_bound_offset(fourth, 1) is None
        assert index.fetch_upper_bound_offset(first, 200) is None

    def test_reopen(self, offset_index: OffsetIndexFile) -> None:
        """OffsetIndexTest.testReopen"""
        offset_index.append(51, 1)
        offset_index.append(52, 2)
        index = reopened(offset_index)
        assert [index.lookup(offset) for offset in (51, 52)] == [(51, 1), (52, 2)]
        check_fields(index, last_offset=52, entries=2, max_entries=2, is_full=True)
        with pytest.raises(IndexFullError):
            index.append(53, 3)
        assert index.resize(OFFSET_BYTES)
        index.append(53, 3)
        assert reopened(index).last_offset == 53

    def test_truncate(self, path: Path) -> None:
        """OffsetIndexTest.truncate"""
        index = OffsetIndexFile(path, 0, 10 * 8)
        index.truncate()
        for i in range(1, 10):
            index.append(i, i)
        index.truncate_to(12)
        assert index.lookup(10) == (9, 9)
        index.append(10, 10)
        index.truncate_to(10)
        assert index.lookup(10) == (9, 9)
        index.append(10, 10)
        index.truncate_to(9)
        assert index.lookup(10) == (8, 8)
        index.append(9, 9)
        index.truncate_to(5)
        assert index.lookup(10) == (4, 4)
        index.append(5, 5)
        index.truncate()
        assert index.entries == 0
        index.append(0, 0)
        assert path.read_bytes() == bytes(80)  # what was removed is wiped

    @every_state
    def test_sanity_last_offset_equal_to_base_offset(
        self, offset_index: OffsetIndexFile, state: Callable[[OffsetIndexFile], OffsetIndexFile]
    ) -> None:
        """OffsetIndexTest.testSanityLastOffsetEqualToBaseOffset"""
        offset_index.append(45, 0)
        state(offset_index).sanity_check()

    def test_sanity_check(self, offset_index: OffsetIndexFile, path: Path) -> None:
        path.write_bytes(bytes(OFFSET_BYTES) + b"x")
        with pytest.raises(CorruptIndexError):
            offset_index.sanity_check()

    def test_use_after_close(self, offset_index: OffsetIndexFile, path: Path) -> None:
        """OffsetIndexTest.forceUnmapTest: nothing is mapped, and what was closed is opened again by whoever asks"""
        offset_index.append(51, 1)
        offset_index.close()
        assert path.stat().st_size == 8
        assert offset_index.is_idle
        assert offset_index.lookup(51) == (51, 1)


class TestTimeIndex:
    @every_state
    def test_look_up(self, time_index: TimeIndexFile, state: Callable[[TimeIndexFile], TimeIndexFile]) -> None:
        """TimeIndexTest.testLookUp"""
        assert time_index.lookup(100) == (-1, 45)
        fill(time_index)
        index = state(time_index)
        assert [index.lookup(timestamp) for timestamp in (9, 25, 30)] == [(-1, 45), (20, 65), (30, 75)]

    @every_state
    def test_entry(self, time_index: TimeIndexFile, state: Callable[[TimeIndexFile], TimeIndexFile]) -> None:
        """TimeIndexTest.testEntry, testEntryOverflow"""
        with pytest.raises(InvalidArgumentError):
            time_index.entry(0)
        fill(time_index)
        index = state(time_index)
        assert [index.entry(slot) for slot in range(4)] == [(10, 55), (20, 65), (30, 75), (40, 85)]

    def test_truncate(self, time_index: TimeIndexFile, path: Path) -> None:
        """TimeIndexTest.testTruncate"""
        fill(time_index)
        time_index.truncate()
        assert (time_index.entries, path.read_bytes()) == (0, bytes(TIME_BYTES))
        fill(time_index)
        time_index.truncate_to(55)
        assert time_index.entries == 0
        fill(time_index)
        time_index.truncate_to(86)
        assert time_index.last_entry == (40, 85)

    def test_append(self, time_index: TimeIndexFile) -> None:
        """TimeIndexTest.testAppend"""
        fill(time_index)
        with pytest.raises(IndexFullError):
            time_index.maybe_append(10000, 1000)
        with pytest.raises(InvalidOffsetError):
            time_index.maybe_append(10000, 280, skip_full_check=True)
        with pytest.raises(InvalidArgumentError):
            time_index.maybe_append(280, 1000, skip_full_check=True)
        time_index.maybe_append(10000, 1000, skip_full_check=True)
        assert reopened(time_index).last_entry == (10000, 1000)

    def test_sanity_check(self, time_index: TimeIndexFile, path: Path) -> None:
        """TimeIndexTest.testSanityCheck"""
        time_index.sanity_check()
        fill(time_index, 5)
        time_index.sanity_check()
        good = time_index.to_bytes()
        time_index.close()
        for broken in (
            good[:-4] + b"\xff\xff\xff\xff",  # the last offset lies below the base
            good[:-12] + bytes(7) + b"\x01" + good[-4:],  # the last timestamp is before the first
            good + b"x",
        ):
            path.write_bytes(broken)
            with pytest.raises(CorruptIndexError):
                TimeIndexFile(path, BASE, TIME_BYTES).sanity_check()

    def test_is_full(self, time_index: TimeIndexFile) -> None:
        """TimeIndexTest.testIsFull"""
        assert not time_index.is_full
        fill(time_index, 28)
        assert not time_index.is_full
        time_index.maybe_append(1000, 1000)
        assert time_index.is_full

    @every_state
    def test_last_entry(self, time_index: TimeIndexFile, state: Callable[[TimeIndexFile], TimeIndexFile]) -> None:
        """TimeIndexTest.testLastEntry"""
        assert time_index.last_entry == (-1, 45)
        time_index.maybe_append(1, 46)
        assert state(time_index).last_entry == (1, 46)

    def test_resize(self, time_index: TimeIndexFile, path: Path) -> None:
        """TimeIndexTest.testResize"""
        assert not time_index.resize(TIME_BYTES)
        assert time_index.resize(TIME_BYTES // 2)
        assert path.stat().st_size == TIME_BYTES // 2
        assert time_index.resize(TIME_BYTES * 2)
        assert path.stat().st_size == time_index.length_bytes == TIME_BYTES * 2

    def test_less_room_than_entries(self, time_index: TimeIndexFile) -> None:
        """segment.index.bytes was lowered, and the active segment's index has more: nothing of it is lost, and it is full."""
        fill(time_index, 20)
        time_index.close()
        index = TimeIndexFile(time_index.path, BASE, 10 * 12)
        assert not index.resize(index.max_index_bytes)
        assert (index.entries, index.last_entry, index.is_full) == (20, (200, 245), True)
        index.truncate_to(100)
        assert index.resize(index.max_index_bytes)
        assert (index.entries, index.max_entries, index.is_full) == (5, 10, False)
        index.close()

    def test_timestamp_zero_at_the_base(self, time_index: TimeIndexFile) -> None:
        """A record of 1970: the only entry is all zeros, and no tail."""
        time_index.maybe_append(0, 45)
        assert at_rest(time_index).last_entry == (0, 45)
        assert reopened(time_index).last_entry == (0, 45)

    def test_the_same_entry_again_changes_nothing(self, time_index: TimeIndexFile, path: Path) -> None:
        """What a close does to a segment whose largest timestamp was asked for."""
        fill(time_index, 3)
        before = open_descriptors()
        index = reopened(time_index)
        index.maybe_append(30, 75, skip_full_check=True)
        assert (index.is_open, open_descriptors()) == (False, before - 1)
        index.close()
        assert path.stat().st_size == 36


def fill(index: TimeIndexFile, entries: int = 29) -> None:
    for i in range(1, entries + 1):
        index.maybe_append(10 * i, 45 + 10 * i)


class TestFile:
    def test_created_when_first_asked_for(self, offset_index: OffsetIndexFile, path: Path) -> None:
        before = open_descriptors()
        offset_index.rename_to(path.with_suffix(".deleted"))
        offset_index.rename_to(path)
        assert not offset_index.delete_if_exists()
        offset_index.close()
        assert (offset_index.is_idle, path.exists(), open_descriptors()) == (True, False, before)
        assert offset_index.entries == 0
        assert path.read_bytes() == bytes(OFFSET_BYTES)

    @pytest.mark.parametrize(("room", "length"), [(30 * 8 + 7, 30 * 8), (8, 8)])
    def test_room_is_rounded_down(self, path: Path, room: int, length: int) -> None:
        index = OffsetIndexFile(path, BASE, room)
        assert (index.max_entries, index.length_bytes) == (length // 8, length)
        assert path.stat().st_size == length

    def test_room_for_no_entry(self, path: Path) -> None:
        with pytest.raises(InvalidArgumentError):
            _ = OffsetIndexFile(path, BASE, 7).entries

    def test_sparse(self, path: Path) -> None:
        index = OffsetIndexFile(path, BASE, 10 << 20)
        index.append(50, 1)
        assert (path.stat().st_size, path.stat().st_blocks * 512 < 100_000) == (10 << 20, True)

    def test_live_file_holds_entries_and_zeros(self, offset_index: OffsetIndexFile, path: Path) -> None:
        offset_index.append(50, 1)
        offset_index.append(60, 2)
        entries = bytes.fromhex("00000005 00000001 0000000f 00000002")
        assert path.read_bytes() == entries.ljust(OFFSET_BYTES, b"\0")
        assert offset_index.trim_to_valid_size()
        assert path.read_bytes() == entries == offset_index.to_bytes()
        assert not offset_index.trim_to_valid_size()

    def test_at_rest_costs_nothing(self, offset_index: OffsetIndexFile) -> None:
        before = open_descriptors()
        offset_index.append(50, 1)
        assert open_descriptors() == before + 1
        at_rest(offset_index)
        for look in (
            lambda: offset_index.lookup(50),
            lambda: offset_index.last_offset,
            lambda: offset_index.entry(0),
            lambda: offset_index.entries,
            offset_index.to_bytes,
            offset_index.sanity_check,
            offset_index.flush,
        ):
            look()
            assert open_descriptors() == before

    def test_descriptor_given_back_and_taken_again(self, offset_index: OffsetIndexFile, path: Path) -> None:
        offset_index.append(50, 1)
        offset_index.release()
        assert not offset_index.is_open
        offset_index.append(60, 2)
        assert offset_index.is_open
        assert path.read_bytes()[8:16] == bytes.fromhex("0000000f 00000002")

    @pytest.mark.parametrize("rest", [False, True])
    def test_rename(self, offset_index: OffsetIndexFile, path: Path, rest: bool) -> None:
        offset_index.append(50, 1)
        if rest:
            at_rest(offset_index)
            assert offset_index.lookup(50) == (50, 1)
        offset_index.rename_to(path.with_suffix(".index.deleted"))
        assert not path.exists()
        assert offset_index.lookup(55) == (50, 1)
        moved = path.parent.with_name(f"{path.parent.name}-moved")
        path.parent.rename(moved)
        offset_index.update_parent_dir(moved)
        assert offset_index.lookup(55) == (50, 1)
        with pytest.raises(StorageError, match="rename"):
            offset_index.rename_to(path.parent / "no" / "such" / "folder")
        assert offset_index.path == path.parent / "no" / "such" / "folder"

    def test_delete(self, offset_index: OffsetIndexFile, path: Path) -> None:
        before = open_descriptors()
        offset_index.append(50, 1)
        assert offset_index.delete_if_exists()
        assert (path.exists(), open_descriptors()) == (False, before)
        assert not offset_index.delete_if_exists()
        assert offset_index.entries == 0  # made anew

    def test_reset(self, offset_index: OffsetIndexFile, path: Path) -> None:
        """Recovery begins with room for everything, whatever was there, and without reading it."""
        path.write_bytes(b"nonsense nonsense")
        offset_index.reset()
        assert path.read_bytes() == bytes(OFFSET_BYTES)
        assert (offset_index.entries, offset_index.max_entries) == (0, 30)

    @pytest.mark.parametrize("count", [0, 1, 29, 30, 31, 100])
    def test_install(self, offset_index: OffsetIndexFile, path: Path, count: int) -> None:
        """What recovery has rebuilt; what there is no room for is left out."""
        offset_index.append(1000, 1)
        raw = b"".join((i + 1).to_bytes(4, "big") + i.to_bytes(4, "big") for i in range(count))
        offset_index.install(raw)
        kept = min(count, 30)
        assert (offset_index.entries, offset_index.last_offset) == (kept, 45 + kept)
        assert path.read_bytes() == raw[: 30 * 8].ljust(OFFSET_BYTES, b"\0")

    def test_flush_makes_the_file(self, offset_index: OffsetIndexFile, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """UnifiedLogTest.testFlushingEmptyActiveSegments, as far as it concerns one index; an empty file needs no sync"""
        synced: list[int] = []
        monkeypatch.setattr(os, "fsync", synced.append)
        offset_index.flush()
        offset_index.flush()
        assert (path.stat().st_size, len(synced)) == (0, 0)
        offset_index.append(50, 1)
        at_rest(offset_index).flush()
        assert (path.stat().st_size, len(synced)) == (8, 1)

    def test_flush_of_what_nobody_asked_for_reads_nothing(
        self, offset_index: OffsetIndexFile, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path.write_bytes(bytes(16))
        monkeypatch.setattr(os, "pread", lambda *args: pytest.fail("not needed"))
        offset_index.flush()
        assert (offset_index.is_idle, offset_index.is_open) == (True, False)

    def test_closing_syncs_what_was_written(
        self, offset_index: OffsetIndexFile, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Kafka's close does not: a power cut after a clean end could take the last entry."""
        synced: list[int] = []
        monkeypatch.setattr(os, "fsync", lambda fd: synced.append(path.stat().st_size))
        offset_index.append(50, 1)
        offset_index.close()
        assert synced == [8]
        offset_index.lookup(50)
        offset_index.close()
        assert synced == [8]
        offset_index.resize(OFFSET_BYTES)
        offset_index.append(60, 2)
        at_rest(offset_index)
        offset_index.close()
        assert synced == [8, 16]
        offset_index.resize(OFFSET_BYTES)
        offset_index.delete_if_exists()
        offset_index.close()
        assert synced == [8, 16]

    def test_closing_what_was_only_read_leaves_it(self, offset_index: OffsetIndexFile, path: Path) -> None:
        path.write_bytes(bytes.fromhex("00000005 00000001"))
        assert offset_index.lookup(50) == (50, 1)
        offset_index.close()
        assert path.read_bytes() == bytes.fromhex("00000005 00000001")

    def test_closing_trims_a_tail_of_zeros(self, offset_index: OffsetIndexFile, path: Path) -> None:
        """An index that was copied or left while it was live holds the entries before its zeros only."""
        path.write_bytes(bytes.fromhex("00000005 00000001").ljust(80, b"\0"))
        assert (offset_index.lookup(99), offset_index.entries, offset_index.max_entries) == ((50, 1), 1, 10)
        offset_index.append(60, 2)
        offset_index.close()
        assert path.read_bytes() == bytes.fromhex("00000005 00000001 0000000f 00000002")

    def test_appending_to_a_broken_length(self, offset_index: OffsetIndexFile, path: Path) -> None:
        path.write_bytes(bytes.fromhex("00000005 00000001 ffffff"))
        assert offset_index.resize(OFFSET_BYTES)
        offset_index.append(60, 2)
        assert path.read_bytes() == bytes.fromhex("00000005 00000001 0000000f 00000002").ljust(OFFSET_BYTES, b"\0")

    def test_an_empty_file_is_full(self, time_index: TimeIndexFile, path: Path) -> None:
        path.write_bytes(b"")
        assert (time_index.entries, time_index.is_full, time_index.last_entry) == (0, True, (-1, 45))


class TestFullDisk:
    @pytest.mark.parametrize("room", [0, 5])
    def test_an_entry_that_cannot_be_written_is_none(
        self, offset_index: OffsetIndexFile, path: Path, monkeypatch: pytest.MonkeyPatch, room: int
    ) -> None:
        """In Kafka a full disk under a mapped index kills the process; here it is an error."""
        offset_index.append(50, 1)
        before = path.read_bytes()
        make_room = full_disk(monkeypatch, room=room)
        with pytest.raises(StorageError, match="No space left on device"):
            offset_index.append(60, 2)
        assert (offset_index.entries, offset_index.last_offset, path.read_bytes()) == (1, 50, before)
        make_room()
        offset_index.append(60, 3)
        assert reopened(offset_index).entry(1) == (60, 3)

    def test_not_even_wiped(self, time_index: TimeIndexFile, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What half an entry has left is overwritten by the next, or cut by the close."""
        time_index.maybe_append(10, 55)
        make_room = full_disk(monkeypatch, room=9, cannot_cut=True)
        with pytest.raises(StorageError, match="No space left on device"):
            time_index.maybe_append(20, 65)
        assert (time_index.entries, time_index.last_entry) == (1, (10, 55))
        make_room()
        time_index.close()
        assert path.stat().st_size == 12

    def test_short_writes_go_on(self, time_index: TimeIndexFile, monkeypatch: pytest.MonkeyPatch) -> None:
        short_writes(monkeypatch, 5)
        fill(time_index)
        assert reopened(time_index).entry(28) == (290, 335)

    def test_a_folder_that_is_gone(self, tmp_path: Path) -> None:
        index = OffsetIndexFile(tmp_path / "no" / "0.index", 0, 80)
        for use in (lambda: index.append(1, 1), lambda: index.entries, index.flush, index.reset):
            with pytest.raises(StorageError):
                use()

    def test_a_folder_in_its_place(self, offset_index: OffsetIndexFile, path: Path) -> None:
        path.mkdir()
        for use in (lambda: offset_index.append(1, 1), lambda: offset_index.entries, offset_index.delete_if_exists):
            with pytest.raises(StorageError):
                use()

    def test_a_disk_that_will_not_sync(self, offset_index: OffsetIndexFile, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(fd: int) -> None:
            raise OSError(5, "Input/output error")

        offset_index.append(50, 1)
        monkeypatch.setattr(os, "fsync", broken)
        with pytest.raises(StorageError, match="sync"):
            offset_index.flush()


class IndexFileMachine(RuleBasedStateMachine):
    """A time index against a list; it is the richer of the two."""

    @initialize(room=st.integers(2, 12))
    def begin(self, room: int) -> None:
        self.path = Path(os.environ["TIDELOG_TEST_FOLDER"]) / "0.timeindex"
        self.room = room
        self.path.unlink(missing_ok=True)
        self.index = TimeIndexFile(self.path, BASE, room * 12)
        self.model: list[tuple[int, int]] = []
        self.limit = room

    @rule(later=st.integers(0, 3), further=st.integers(0, 3), skip=st.booleans())
    def append(self, later: int, further: int, skip: bool) -> None:
        timestamp, offset = self.model[-1] if self.model else (-1, BASE)
        entry = (timestamp + later, offset + further)
        if not skip and len(self.model) >= self.limit - 1:
            with pytest.raises(IndexFullError):
                self.index.maybe_append(*entry)
        else:
            self.index.maybe_append(*entry, skip_full_check=skip)
            self.model += [entry] if later else []
            self.limit = max(self.limit, len(self.model))

    @rule(offset=st.integers(BASE, BASE + 12))
    def truncate_to(self, offset: int) -> None:
        self.index.truncate_to(offset)
        self.model = [entry for entry in self.model if entry[1] < offset]
        self.limit = max(self.limit, len(self.model))

    @rule(room=st.integers(0, 12))
    def resize(self, room: int) -> None:
        room = max(room, len(self.model))
        assert self.index.resize(room * 12 + 5) == (room != self.limit)
        self.limit = room

    @rule()
    def rest(self) -> None:
        self.index.trim_to_valid_size()
        self.index.rest()
        self.limit = len(self.model)

    @rule()
    def reopen(self) -> None:
        self.index.close()
        assert self.path.read_bytes() == raw(self.model)
        self.index = TimeIndexFile(self.path, BASE, self.room * 12)
        self.limit = len(self.model)

    @rule()
    def release(self) -> None:
        self.index.release()

    @invariant()
    def is_the_model(self) -> None:
        if not hasattr(self, "model"):
            return
        assert [self.index.entry(slot) for slot in range(self.index.entries)] == self.model
        assert self.index.last_entry == (self.model[-1] if self.model else (-1, BASE))
        data = self.path.read_bytes()
        assert data.startswith(raw(self.model))
        assert not any(data[len(self.model) * 12 :])
        assert self.index.is_full == (len(self.model) >= self.limit - 1)
        for timestamp in range(-1, 40, 5):
            below = [entry for entry in self.model if entry[0] <= timestamp]
            assert self.index.lookup(timestamp) == (below[-1] if below else (-1, BASE))

    def teardown(self) -> None:
        if hasattr(self, "index"):
            self.index.delete_if_exists()


def raw(entries: list[tuple[int, int]]) -> bytes:
    return b"".join(timestamp.to_bytes(8, "big") + (offset - BASE).to_bytes(4, "big") for timestamp, offset in entries)


@pytest.fixture
def _folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_TEST_FOLDER", str(tmp_path_factory.mktemp("index")))


@pytest.mark.usefixtures("_folder")
class TestIndexFileModel(IndexFileMachine.TestCase):
    settings = examples(60, stateful_step_count=20)


class TestOftenAsked:
    """An index at rest that is asked over and over is taken into memory, and given up for others."""

    def test_the_same_answers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(index_cache, "MAX_BYTES", 16 * 1024)
        indexes = []
        for number in range(12):
            index = OffsetIndexFile(tmp_path / f"{number:020d}.index", 0, 4096)
            for entry in range(100):
                index.append(10 * entry + number, 100 * entry)
            index.rest()
            indexes.append(index)
        asked = [0, 5, 500, 501, 995, 2000]
        expected = [[index.lookup(offset) for offset in asked] for index in indexes]
        for _ in range(4):
            assert [[index.lookup(offset) for offset in asked] for index in indexes] == expected
        assert expected[3] == [(0, 0), (3, 0), (493, 4900), (493, 4900), (993, 9900), (993, 9900)]
        kept = index_cache._kept
        assert kept.total_bytes == sum(kept.indexes.values()) <= 16 * 1024

    def test_changed_again(self, tmp_path: Path) -> None:
        index = OffsetIndexFile(tmp_path / "00000000000000000000.index", 0, 4096)
        index.append(5, 10)
        index.rest()
        for _ in range(5):
            assert index.lookup(100) == (5, 10)
        index.append(50, 1000)
        assert index.lookup(100) == (50, 1000)
        index.truncate_to(50)
        index.rest()
        for _ in range(5):
            assert index.lookup(100) == (5, 10)
