"""The segments of one log without what stands around them: LocalLogTest, and segments replaced by others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.crash_states import CrashStates
from tests.storage.partition_logs import NOW_MS, bases, batch, config, fetch, offsets, open_log, snapshots
from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError
from tidelog.records.batch import iter_headers
from tidelog.storage.partition.file_deletion import delete_segment_files
from tidelog.storage.partition.local_log import LocalLog
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partition.segment_replacement import at_once
from tidelog.storage.segment.log_segment import LogSegment

SIZE = len(batch())


def filled(directory: Path, count: int, per_segment: int = 3, clock: ManualClock | None = None) -> PartitionLog:
    log = open_log(directory, clock, segment_bytes=per_segment * SIZE)
    for i in range(count):
        log.append_as_leader(batch(timestamp=NOW_MS + i), 0)
    return log


def append(local: LocalLog, offset: int) -> None:
    data = batch(offset)
    local.append(offset, list(iter_headers(data)), data)


class TestAppendAndRoll:
    def test_log_append(self, tmp_path: Path) -> None:
        """LocalLogTest.testLogAppend."""
        local = open_log(tmp_path).local
        end = local.log_end_offset_metadata
        assert end == (0, 0, 0)
        read = local.locate(0, 1, min_one_message=True, max_offset=end, include_aborted=False).load()
        assert (len(read.data), read.metadata) == (0, (0, 0, 0))
        for offset in range(3):
            append(local, offset)
        assert (local.log_end_offset_metadata, local.recovery_point) == ((3, 0, 3 * SIZE), 0)
        read = local.locate(
            0, 2**20, min_one_message=False, max_offset=local.log_end_offset_metadata, include_aborted=False
        ).load()
        assert read.data == b"".join(batch(offset) for offset in range(3))

    def test_roll_empty_active_segment(self, tmp_path: Path) -> None:
        """LocalLogTest.testRollEmptyActiveSegment."""
        log = open_log(tmp_path)
        before = log.segments.active
        log.local.roll()
        assert (len(log.segments), log.segments.active.base_offset, log.segments.active.size_bytes) == (1, 0, 0)
        assert log.segments.active is not before

    def test_roll_segment_that_already_exists(self, tmp_path: Path) -> None:
        """LocalLogTest.testRollSegmentThatAlreadyExists."""
        local = open_log(tmp_path).local
        assert len(local.segments) == 1
        local.roll(0)
        assert len(local.segments) == 1
        append(local, 0)
        for offset in (1, 2):
            assert local.roll(offset).base_offset == offset
            append(local, offset)
        assert local.segments.base_offsets == [0, 1, 2]

    def test_new_segments_after_roll(self, tmp_path: Path) -> None:
        """LocalLogTest.testNewSegmentsAfterRoll."""
        local = open_log(tmp_path).local
        for offset in range(3):
            append(local, offset)
            assert local.roll().base_offset == offset + 1
            assert local.log_end_offset_metadata == (offset + 1, offset + 1, 0)
        assert local.roll(10).base_offset == 10
        assert local.log_end_offset_metadata == (3, 10, 0)

    def test_roll_segment_error_when_next_offset_is_illegal(self, tmp_path: Path) -> None:
        """LocalLogTest.testRollSegmentErrorWhenNextOffsetIsIllegal."""
        local = open_log(tmp_path).local
        for offset in range(3):
            append(local, offset)
        local.roll()
        append(local, 3)
        local.update_log_end_offset(1)
        with pytest.raises(InvalidArgumentError, match="above the active segment"):
            local.roll()
        local.update_log_end_offset(3)
        with pytest.raises(InvalidArgumentError, match="above the active segment"):
            local.roll()

    def test_log_flush(self, tmp_path: Path) -> None:
        """LocalLogTest.testLogFlush."""
        clock = ManualClock(NOW_MS)
        local = open_log(tmp_path, clock).local
        append(local, 0)
        assert (local.recovery_point, local.unflushed_messages) == (0, 1)
        local.flush(local.log_end_offset)
        clock.advance(7)
        local.mark_flushed(local.log_end_offset)
        assert (local.recovery_point, local.unflushed_messages, local.last_flush_ms) == (1, 0, NOW_MS + 7)
        local.mark_flushed(0)
        assert local.recovery_point == 1


class TestSegments:
    def test_log_segments_call_correct(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testLogSegmentsCallCorrect."""
        log = filled(tmp_path, 35, 10)
        assert bases(log) == [0, 10, 20, 30]

        def values(start: int, end: int) -> list[int]:
            return [segment.base_offset for segment in log.segments.values(start, end)]

        assert [values(10, 10), values(1, 5), values(13, 21)] == [[], [0], [10, 20]]
        with pytest.raises(InvalidArgumentError):
            values(10, 0)

    def test_non_active_from(self, tmp_path: Path) -> None:
        """LocalLogTest.testNonActiveSegmentsFrom."""
        log = filled(tmp_path, 15, 3)
        found = [[segment.base_offset for segment in log.segments.non_active_from(offset)] for offset in (0, 4, 9, 10, 12, 100)]
        assert found == [[0, 3, 6, 9], [3, 6, 9], [9], [9], [], []]

    @pytest.mark.parametrize("asynchronous", [True, False])
    def test_remove_and_delete_segments(self, asynchronous: bool, tmp_path: Path) -> None:
        """LocalLogTest.testRemoveAndDeleteSegments{Sync,Async}."""
        clock = ManualClock(NOW_MS)
        log = filled(tmp_path, 9, 1, clock)
        going = log.segments.values()[:-1]
        log.local.remove_and_delete_segments(going, asynchronous=asynchronous)
        assert bases(log) == [8]
        renamed = list(log.directory.glob("*.log.deleted"))
        assert len(renamed) == (8 if asynchronous else 0)
        assert all(all(path.name.endswith(".deleted") for path in segment.paths) for segment in going)
        clock.advance(60_000)
        log.scheduler.tick()
        assert not list(log.directory.glob("*.deleted"))

    @pytest.mark.parametrize("asynchronous", [True, False])
    def test_delete_segment_files(self, asynchronous: bool, tmp_path: Path) -> None:
        """LocalLogTest.testDeleteSegmentFiles{Sync,Async}: the files only, the log knows the segments still."""
        clock = ManualClock(NOW_MS)
        log = filled(tmp_path, 9, 1, clock)
        going = log.segments.values()[:-1]
        delete_segment_files(going, log.scheduler if asynchronous else None, 1000)
        delete_segment_files(going, log.scheduler if asynchronous else None, 1000)
        assert len(log.segments) == 9
        assert len(list(log.directory.glob("*.log.deleted"))) == (8 if asynchronous else 0)
        clock.advance(1000)
        log.scheduler.tick()
        assert not list(log.directory.glob("*.deleted"))

    def test_create_and_delete_segment(self, tmp_path: Path) -> None:
        """LocalLogTest.testCreateAndDeleteSegment."""
        log = open_log(tmp_path)
        log.append_as_leader(batch(), 0)
        old = log.segments.active
        new = log.local.create_and_delete_segment(1, old)
        assert (log.segments.active, new.base_offset, bases(log)) == (new, 1, [1])
        assert all(path.name.endswith(".deleted") for path in old.paths)
        same = log.local.create_and_delete_segment(1, new)
        assert (log.segments.active, same.size_bytes, bases(log)) == (same, 0, [1])
        assert all(path.name.endswith(".deleted") for path in new.paths)


def cleaned(log: PartitionLog, base: int, kept: list[int]) -> LogSegment:
    """A segment as the cleaner leaves it: some of the records, closed and flushed, with the suffix .cleaned."""
    segment = LogSegment.open(log.directory, base, config(), log.clock, suffix=".cleaned")
    for offset in kept:
        data = batch(offset, NOW_MS + offset)
        segment.append(offset, list(iter_headers(data)), data)
    segment.on_become_inactive()
    segment.flush()
    return segment


class TestReplacement:
    def test_replace_segments(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testCompactionDeletesProducerStateSnapshots, its second half: a snapshot goes with its base."""
        log = filled(tmp_path, 10)
        assert (bases(log), snapshots(log.directory)) == ([0, 3, 6, 9], [3, 6, 9])
        old = log.segments.values()[:3]
        new = [cleaned(log, 0, [1, 4]), cleaned(log, 6, [7])]
        at_once(log.replacing_segments(new, old))
        assert (bases(log), offsets(log), snapshots(log.directory)) == ([0, 6, 9], [1, 4, 7, 9], [6, 9])
        assert not list(log.directory.glob("*.cleaned")) + list(log.directory.glob("*.swap"))
        assert len(list(log.directory.glob("*.log.deleted"))) == 3
        log.clock.advance(60_000)  # type: ignore[attr-defined]
        log.scheduler.tick()
        assert not list(log.directory.glob("*.deleted"))
        assert offsets(log) == [1, 4, 7, 9]
        log.close()
        assert offsets(open_log(tmp_path)) == [1, 4, 7, 9]

    def test_an_old_one_that_was_deleted_meanwhile_is_left_alone(self, tmp_path: Path) -> None:
        log = filled(tmp_path, 10)
        old = log.segments.values()[:2]
        log.local.remove_and_delete_segments(old[:1])
        at_once(log.replacing_segments([cleaned(log, 3, [4])], old))
        assert (bases(log), fetch(log, 3)[0]) == ([3, 6, 9], 4)

    def test_nothing_in_the_place_of_something(self, tmp_path: Path) -> None:
        log = filled(tmp_path, 4)
        with pytest.raises(InvalidArgumentError):
            at_once(log.replacing_segments([], log.segments.values()[:1]))

    def test_a_kill_at_any_moment(self, tmp_path: Path) -> None:
        """LogCleanerTest.testRecoveryAfterCrash: before and after every call, the old records or the new ones are there."""
        log = filled(tmp_path, 10)
        log.flush()
        old = log.segments.values()[:3]
        new = [cleaned(log, 0, [1, 4]), cleaned(log, 6, [7])]
        with CrashStates(log.directory, tmp_path / "states") as states:
            at_once(log.replacing_segments(new, old))
        seen = []
        for state in states.folders:
            loaded = open_log(state.parent, clean=False)
            seen.append(offsets(loaded))
            loaded.close_handlers()
        before, after = list(range(10)), [1, 4, 7, 9]
        assert seen[0] == before
        assert seen[-1] == after
        assert all(found in (before, after) for found in seen)
        assert sorted(seen, key=len, reverse=True) == seen  # once finished, it stays finished
        assert len(seen) > 10
