"""Compaction of one log: keys, tombstones, grouping, the offset map, damage (LogCleanerTest)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.compacting import (
    DELETE_RETENTION_MS,
    aborted,
    all_records,
    append,
    append_by,
    batch_last_offsets,
    clean,
    clean_segments,
    compacted_log,
    compressed,
    do_next,
    fill,
    forget,
    keys,
    last_sequences,
    make_cleaner,
    offsets_with_values,
    producer,
    record,
    to_clean,
)
from tests.storage.partition_logs import NOW_MS, has_overflow, headers, messages, offset_entries, time_entries
from tidelog.clock import ManualClock
from tidelog.errors import CorruptBatchError
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.legacy import build_message_set
from tidelog.records.records import Record
from tidelog.storage.compaction.cleaner import run
from tidelog.storage.compaction.cleaner_stats import CleanerStats
from tidelog.storage.compaction.segment_grouping import group_segments_by_size
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partition.segment_replacement import ReplacementAbortedError
from tidelog.storage.segment.log_segment import LogSegment

INT_MAX = 2**31 - 1


class TestSegments:
    def test_clean_segments(self, tmp_path: Path) -> None:
        """LogCleanerTest.testCleanSegments."""
        log = compacted_log(tmp_path)
        fill(log, 4)
        before = keys(log)
        assert before == list(range(log.log_end_offset))
        cleaner = make_cleaner()
        forget(cleaner, (1, 3, 5, 7, 9))
        segments = list(log.segments)[:3]
        size = sum(segment.size_bytes for segment in segments)
        stats = CleanerStats()
        assert clean_segments(cleaner, log, segments, stats=stats)
        assert keys(log) == [key for key in before if key not in (1, 3, 5, 7, 9)]
        assert stats.bytes_read == size

    def test_segments_deleted_meanwhile(self, tmp_path: Path) -> None:
        """LogCleanerTest.testCleanSegmentsWithConcurrentSegmentDeletion: here between two steps."""
        log = compacted_log(tmp_path, cleanup_policy="compact,delete")
        while len(log.segments) < 3:
            append(log, 0, log.log_end_offset)
            log.roll()
        first = log.segments.first
        assert first is not None
        cleaner = make_cleaner()
        steps = cleaner.steps(to_clean(log))
        while not list(log.directory.glob("*.cleaned")):
            do_next(steps)
        log.update_high_watermark(log.segments.active.base_offset)
        log.maybe_increment_log_start_offset(log.segments.active.base_offset)
        assert log.delete_old_segments() == 2
        run(steps)
        assert first.log.path.name == "00000000000000000000.log.deleted"
        assert len(log.segments) == 2

    def test_preallocated_is_trimmed(self, tmp_path: Path) -> None:
        """LogCleanerTest.testSizeTrimmedForPreallocatedAndCompactedTopic."""
        log = compacted_log(tmp_path, preallocate=True)
        for key in (0, 1, 0, 1, 0):
            append(log, key, key)
        log.roll()
        clean(make_cleaner(2), log, 2)
        segment = log.segments.first
        assert segment is not None
        assert segment.log.path.stat().st_size == segment.size_bytes < 1024

    def test_large_batches(self, tmp_path: Path) -> None:
        """LogCleanerTest.testLargeMessage, testMessageLargerThanMaxMessageSize: larger than buffers and limits."""
        large = 1024 * 1024
        log = compacted_log(tmp_path, segment_bytes=large * 4, max_message_bytes=large * 2, segment_index_bytes=4096)
        while len(log.segments) < 2:
            append(log, log.log_end_offset, bytes(large))
        log.update_config(type(log.config)(cleanup_policy="compact", max_message_bytes=large // 2))
        cleaner = make_cleaner(io_buffer_bytes=1024)
        forget(cleaner, (1,))
        before = keys(log)
        assert clean_segments(cleaner, log, list(log.segments)[:1])
        assert keys(log) == [key for key in before if key != 1]

    def test_corrupt_header(self, tmp_path: Path) -> None:
        """LogCleanerTest.testMessageLargerThanMaxMessageSizeWithCorruptHeader; nothing of the new segment is left."""
        log = compacted_log(tmp_path, segment_bytes=1 << 20)
        append(log, 1, bytes(5000))
        log.roll()
        path = log.directory / "00000000000000000000.log"
        data = bytearray(path.read_bytes())
        data[16] = 0xFF
        path.write_bytes(data)
        cleaner = make_cleaner(io_buffer_bytes=1024)
        with pytest.raises(CorruptBatchError):
            clean_segments(cleaner, log, list(log.segments)[:1])
        assert not list(log.directory.glob("*.cleaned"))

    def test_batch_cut_off(self, tmp_path: Path) -> None:
        """LogCleanerTest.testCorruptMessageSizeLargerThanBytesAvailable."""
        log = compacted_log(tmp_path, segment_bytes=1 << 20)
        append(log, 1, bytes(5000))
        log.roll()
        segment = log.segments.first
        assert segment is not None
        segment.log.truncate_to(1000)
        cleaner = make_cleaner(io_buffer_bytes=512)
        with pytest.raises(CorruptBatchError, match="longer than the remaining part"):
            clean_segments(cleaner, log, [segment])
        segment.log.truncate_to(10)
        with pytest.raises(CorruptBatchError, match="truncated"):
            clean_segments(cleaner, log, [segment])

    def test_wrong_checksum(self, tmp_path: Path) -> None:
        """A batch that is damaged is not made right by writing it anew; the map sees it first."""
        log = compacted_log(tmp_path)
        log.append_as_leader(compressed([1, 2, 1], Codec.NONE), 0)
        log.roll()
        path = log.directory / "00000000000000000000.log"
        data = bytearray(path.read_bytes())
        data[-2] ^= 1
        path.write_bytes(data)
        with pytest.raises(CorruptBatchError, match="checksum"):
            make_cleaner().clean(to_clean(log))
        assert path.read_bytes() == data

    def test_split_of_an_overflowed_segment(self, tmp_path: Path) -> None:
        """LogCleanerTest.testSegmentWithOffsetOverflow: it is split, and the pass ends; the next one compacts."""
        log = compacted_log(tmp_path, index_interval_bytes=1, segment_bytes=1 << 20)
        append(log, 0, 0)
        append(log, 1, 1)
        segment = log.segments.active
        far = record(2, 2, offset=INT_MAX + 5)
        segment.log.append(far)
        segment.log.append(record(3, 3, offset=INT_MAX + 6))
        log.local.update_log_end_offset(INT_MAX + 7)
        log.local.roll()
        assert has_overflow(segment)
        cleaner = make_cleaner()
        forget(cleaner, (1, 3))
        assert not clean_segments(cleaner, log, [segment])
        assert log.segments.base_offsets == [0, INT_MAX + 5, INT_MAX + 7]
        assert keys(log) == [0, 1, 2, 3]
        assert not any(has_overflow(one) for one in log.segments)
        for one in list(log.segments)[:2]:
            assert clean_segments(cleaner, log, [one])
        assert keys(log) == [0, 2]

    def test_abort(self, tmp_path: Path) -> None:
        """LogCleanerTest.testCleanSegmentsWithAbort: a pass that is ended removes what it was writing."""
        log = compacted_log(tmp_path)
        fill(log, 4)
        before = keys(log)
        steps = make_cleaner().steps(to_clean(log))
        while not list(log.directory.glob("*.cleaned")):
            do_next(steps)
        with pytest.raises(ReplacementAbortedError):
            steps.throw(ReplacementAbortedError())
        assert not list(log.directory.glob("*.cleaned"))
        assert keys(log) == before

    def test_given_up_at_each_step(self, tmp_path: Path) -> None:
        """Also in the middle of the replacement: what is read is the same as before or after it, and so it is after a start."""
        number = 0
        while True:
            (tmp_path / str(number)).mkdir()
            log = compacted_log(tmp_path / str(number))
            fill(log, 3, keys=4)
            before = set(offsets_with_values(log))
            steps = make_cleaner().steps(to_clean(log))
            is_whole = False
            for _ in range(number):
                try:
                    step = next(steps)
                except StopIteration:
                    is_whole = True
                    break
                if not isinstance(step, int):
                    step()
            with pytest.raises(ReplacementAbortedError):
                steps.throw(ReplacementAbortedError())
            found = offsets_with_values(log)
            assert set(found) <= before
            assert sorted(set(keys(log))) == [0, 1, 2, 3]
            assert not list(log.directory.glob("*.cleaned"))
            assert not list(log.directory.glob("*.swap"))
            append(log, 9, 9)
            log.close()
            assert keys(compacted_log(tmp_path / str(number)))[-1] == 9
            if is_whole:
                break
            number += 1
        assert number > 6

    def test_leftovers_of_an_earlier_pass(self, tmp_path: Path) -> None:
        log = compacted_log(tmp_path)
        fill(log, 3, keys=4)
        for suffix in (".log", ".index", ".timeindex", ".txnindex"):
            (log.directory / f"{0:020d}{suffix}.cleaned").write_bytes(b"left over" * 100)
        clean(make_cleaner(), log)
        assert sorted(keys(log)[:4]) == [0, 1, 2, 3]
        assert not list(log.directory.glob("*.cleaned"))


class TestGrouping:
    @staticmethod
    def groups(log: PartitionLog, size: int = INT_MAX, index: int = INT_MAX, end: int | None = None) -> list[list[LogSegment]]:
        found = group_segments_by_size(list(log.segments), size, index, log.log_end_offset if end is None else end)
        assert [segment for group in found for segment in group] == list(log.segments)
        return found

    def test_limits(self, tmp_path: Path) -> None:
        """LogCleanerTest.testSegmentGrouping."""
        log = compacted_log(tmp_path, segment_bytes=300, index_interval_bytes=1)
        while len(log.segments) < 10:
            append(log, 1, b"hello")
        assert len(self.groups(log)) == 1
        assert {len(group) for group in self.groups(log, size=1)} == {1}
        assert {len(group) for group in self.groups(log, index=1)} == {1}
        first = list(log.segments)[:3]
        by_size = self.groups(log, size=sum(segment.size_bytes for segment in first) + 1)
        assert {len(group) for group in by_size[:-1]} == {3}
        by_index = self.groups(log, index=sum(segment.offset_index.size_bytes for segment in first) + 1)
        assert {len(group) for group in by_index[:-1]} == {3}

    def test_sparse_offsets_and_empty_segments(self, tmp_path: Path) -> None:
        """LogCleanerTest.testSegmentGroupingWithSparseOffsetsAndEmptySegments."""
        log = compacted_log(tmp_path, segment_bytes=1 << 20, segment_index_bytes=1 << 20)
        for i in range(3):
            append(log, 1, 1)
            log.append_as_follower(record(1, 1, offset=(i + 1) * (INT_MAX + 1) - 1))
            assert len(log.segments) == i + 1
        append(log, 1, 1)
        end = log.log_end_offset - 1
        assert len(log.segments) == 4
        cleanable = list(log.segments)[:3]
        assert len(group_segments_by_size(list(log.segments), INT_MAX, INT_MAX, end)) == 3
        cleaner = make_cleaner()
        cleaner.clean(to_clean(log, 0, end))
        assert len(log.segments) == 4
        assert log.segments.first is not None
        assert log.segments.first.size_bytes == 0
        assert cleanable[0] is not log.segments.first
        assert len(group_segments_by_size(list(log.segments), INT_MAX, INT_MAX, end)) == 2
        cleaner.clean(to_clean(log, 0, end))
        assert len(log.segments) == 3

    def test_sparse_offsets(self, tmp_path: Path) -> None:
        """LogCleanerTest.testSegmentGroupingWithSparseOffsets."""
        log = compacted_log(tmp_path, segment_bytes=400, index_interval_bytes=1)
        while len(log.segments) == 1:
            append(log, 1, b"hello")
        log.append_as_follower(record(1, b"hello", offset=INT_MAX - 1))
        append(log, 1, b"hello")
        assert log.segments.active.offset_index.last_offset == INT_MAX
        assert len(self.groups(log)) == 1
        append(log, 1, b"hello")
        assert len(self.groups(log)) == 2
        while len(log.segments) < 4:
            append(log, 1, b"hello")
        groups = self.groups(log)
        assert len(groups) == len(log.segments) - 1
        for group in groups:
            assert group[-1].offset_index.last_offset - group[0].base_offset <= INT_MAX

    def test_indexes_that_say_nothing(self, tmp_path: Path) -> None:
        """LogCleanerTest.testSegmentGroupingFollowingLoadOfZeroIndex."""
        log = compacted_log(tmp_path, segment_bytes=400, index_interval_bytes=400)
        log.append_as_follower(record(1, b"hello", offset=0))
        log.append_as_follower(record(1, b"hello", offset=1))
        log.roll(INT_MAX // 2)
        log.append_as_follower(record(1, b"hello", offset=INT_MAX // 2))
        log.append_as_follower(record(1, b"hello", offset=INT_MAX + 1))
        assert log.segments.active.offset_index.last_offset <= INT_MAX
        groups = self.groups(log)
        assert len(groups) == 2
        for group in groups:
            assert group[-1].read_next_offset() - 1 - group[0].base_offset <= INT_MAX

    def test_groups_become_segments(self, tmp_path: Path) -> None:
        """Small neighbours are put together; the new segment has the last one's time and its own indexes."""
        clock = ManualClock(NOW_MS)
        log = compacted_log(tmp_path, clock, segment_bytes=8192, index_interval_bytes=100)
        for _ in range(6):
            for key in range(10):
                append(log, key, key, NOW_MS + log.log_end_offset)
            log.roll()
        sources = list(log.segments)[:6]
        for i, segment in enumerate(sources):
            segment.set_last_modified(1_000_000_000_000 + i)
        clean(make_cleaner(), log)
        assert log.segments.base_offsets == [0, 60]
        segment = log.segments.first
        assert segment is not None
        assert offsets_with_values(log) == list(range(50, 60))
        assert segment.last_modified_ms == 1_000_000_000_005
        positions = {header.last_offset: header.position for header in segment.batches()}
        assert [positions[entry.offset] for entry in offset_entries(log.directory, 0)] == [
            entry.position for entry in offset_entries(log.directory, 0)
        ]
        assert offset_entries(log.directory, 0)
        assert time_entries(log.directory, 0)[-1] == (NOW_MS + 59, 59)
        names = {path.name for path in log.directory.iterdir() if not path.name.endswith(".deleted")}
        assert f"{0:020d}.log" in names
        assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
        assert not [name for name in names if name.startswith(f"{10:020d}.log")]


class TestMap:
    def test_offset_map(self, tmp_path: Path) -> None:
        """LogCleanerTest.testBuildOffsetMap."""
        log = compacted_log(tmp_path)
        for i in range(500):
            append(log, i, i)
        cleaner = make_cleaner()
        bases = log.segments.base_offsets
        for start, end in ((0, bases[1]), (bases[1], bases[3]), (bases[3], log.log_end_offset)):
            stats = CleanerStats()
            run(cleaner.build_offset_map(log, start, end, stats))
            found = cleaner.offset_map
            assert found.latest_offset + 1 == end
            assert found.size == end - start
            assert [found.get(b"%d" % i) for i in range(start, end)] == list(range(start, end))
            assert found.get(b"%d" % (start - 1)) == -1
            assert found.get(b"%d" % end) == -1
            assert stats.map_messages_read == end - start

    def test_sparse(self, tmp_path: Path) -> None:
        """LogCleanerTest.testBuildOffsetMapFakeLarge."""
        log = compacted_log(tmp_path, segment_bytes=120, segment_index_bytes=120)
        log.append_as_follower(record(0, 0, offset=0))
        log.append_as_follower(record(1, 1, offset=7206178))
        cleaner = make_cleaner()
        run(cleaner.build_offset_map(log, 0, 7206179, CleanerStats()))
        found = cleaner.offset_map
        assert (found.latest_offset, found.size, found.get(b"0"), found.get(b"1")) == (7206178, 2, 0, 7206178)

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
    @pytest.mark.parametrize("together", [False, True])
    def test_partial(self, tmp_path: Path, codec: Codec, together: bool) -> None:
        """LogCleanerTest.testBuildPartialOffsetMap: also in the middle of a batch."""
        log = compacted_log(tmp_path)
        if together:
            log.append_as_leader(compressed(range(5), codec), 0)
        else:
            for i in range(5):
                log.append_as_leader(compressed([i], codec), 0)
        log.roll()
        cleaner = make_cleaner(3)  # 0.75 of it: two keys
        stats = CleanerStats()
        run(cleaner.build_offset_map(log, 2, INT_MAX, stats))
        found = cleaner.offset_map
        assert found.size == 2
        assert [found.get(b"%d" % i) for i in range(5)] == [-1, -1, 2, 3, -1]
        assert found.latest_offset == 3
        assert stats.map_messages_read == 4

    def test_partial_of_old_format(self, tmp_path: Path) -> None:
        log = compacted_log(tmp_path, message_format_version="0.10.0")
        records = [Record(i, NOW_MS, CREATE_TIME, b"%d" % i, b"x") for i in range(5)]
        log.append_as_follower(build_message_set(records, 1, codec=Codec.GZIP))
        log.roll()
        cleaner = make_cleaner(3)
        run(cleaner.build_offset_map(log, 2, 5, CleanerStats()))
        assert (cleaner.offset_map.size, cleaner.offset_map.latest_offset) == (2, 3)

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
    def test_missing_offsets(self, tmp_path: Path, codec: Codec) -> None:
        """LogCleanerTest.testCleaningBeyondMissingOffsets."""
        log = compacted_log(tmp_path, segment_bytes=1 << 20)
        for i in range(10):
            log.append_as_follower(compressed([i], codec, i))
        log.roll(15)
        for i in range(15, 25):
            log.append_as_follower(compressed([i], codec, i))
        log.roll(30)
        log.append_as_follower(record(1015, 1015, offset=30))
        assert clean(make_cleaner(), log) == 30


class TestKeys:
    def test_partial_passes(self, tmp_path: Path) -> None:
        """LogCleanerTest.testPartialSegmentClean: each pass gets one key further."""
        log = compacted_log(tmp_path)
        for key in (0, 1, 0, 1, 0):
            append(log, key, key)
        log.roll()
        cleaner = make_cleaner(2)
        clean(cleaner, log, 2)
        assert (keys(log), offsets_with_values(log)) == ([1, 0, 1, 0], [1, 2, 3, 4])
        clean(cleaner, log, 3)
        assert (keys(log), offsets_with_values(log)) == ([0, 1, 0], [2, 3, 4])
        clean(cleaner, log, 4)
        assert (keys(log), offsets_with_values(log)) == ([1, 0], [3, 4])

    def test_statistics(self, tmp_path: Path) -> None:
        """LogCleanerTest.testLogCleanerStats."""
        log = compacted_log(tmp_path)
        for key in (0, 1, 0, 1, 0):
            append(log, key, key)
        log.roll()
        size = log.size_bytes
        result = make_cleaner(4).clean(to_clean(log, 2))
        assert result is not None
        assert result.end_offset == 5
        stats = result.stats
        assert (stats.messages_read, stats.bytes_read) == (5, size)
        assert (stats.messages_written, stats.bytes_written) == (2, log.size_bytes)
        assert stats.invalid_messages_read == 0
        assert stats.end_ms >= stats.start_ms
        assert stats.buffer_utilization == 0.5

    def test_uncleanable_section(self, tmp_path: Path) -> None:
        """LogCleanerTest.testCleaningWithUncleanableSection."""
        log = compacted_log(tmp_path)
        fill(log, 3, keys=5)
        end = log.log_end_offset + 1
        fill(log, 6, keys=5)

        def values() -> list[int]:
            return [len({header.last_offset for header in segment.batches()}) for segment in log.segments]

        before = values()
        assert min(before[:-1]) > 5
        make_cleaner().clean(to_clean(log, 0, end))
        assert values() == [0, 5, *before[2:]]

    def test_deletes(self, tmp_path: Path) -> None:
        """LogCleanerTest.testCleaningWithDeletes."""
        log = compacted_log(tmp_path)
        fill(log, 2)
        end = log.log_end_offset
        for key in range(0, end, 2):
            append(log, key, None)
        fill(log, 6)
        clean(make_cleaner(), log)
        assert not set(range(0, end, 2)) & set(keys(log))
        assert set(range(1, end, 2)) <= set(keys(log))

    def test_tombstone(self, tmp_path: Path) -> None:
        """LogCleanerTest.testCleanTombstone: its horizon counts, whatever its own timestamp says."""
        clock = ManualClock(NOW_MS)
        log = compacted_log(tmp_path, clock, segment_bytes=1 << 20)
        cleaner = make_cleaner(clock=clock)
        append(log, 0, 0, NOW_MS + DELETE_RETENTION_MS + 10_000)
        log.roll()
        clean(cleaner, log)
        append(log, 0, None, NOW_MS - DELETE_RETENTION_MS - 10_000)
        log.roll()
        clean(cleaner, log, 1)
        assert batch_last_offsets(log) == [1]
        append(log, 1, 1, NOW_MS)
        log.roll()
        clean(cleaner, log, 2)
        assert batch_last_offsets(log) == [1, 2]
        assert headers(log)[0].delete_horizon_ms == NOW_MS + DELETE_RETENTION_MS
        clock.advance(DELETE_RETENTION_MS - 1)
        clean(cleaner, log, 3)
        assert batch_last_offsets(log) == [1, 2], "nothing dirty: nothing is done"
        append(log, 2, 2, NOW_MS)
        log.roll()
        clean(cleaner, log, 3)
        assert batch_last_offsets(log) == [1, 2, 3]
        clock.advance(1)
        append(log, 3, 3, NOW_MS)
        log.roll()
        clean(cleaner, log, 4)
        assert batch_last_offsets(log) == [2, 3, 4]

    def test_tombstone_of_an_old_format(self, tmp_path: Path) -> None:
        """v0 and v1 know no horizon: the age of the last clean segment decides (KIP-534 left it so)."""
        log = compacted_log(tmp_path, segment_bytes=60, message_format_version="0.10.0", delete_retention_ms=1000)
        log.append_as_follower(build_message_set([Record(0, NOW_MS, CREATE_TIME, b"0", None)], 1))
        log.roll()
        log.append_as_follower(messages(1, NOW_MS))
        log.roll()
        log.append_as_follower(messages(2, NOW_MS))
        log.roll()
        cleaner = make_cleaner()
        for first_dirty, age_ms, expected in ((1, 999, [0, 1, 2]), (2, 999, [0, 2]), (2, 1000, [2])):
            for segment, modified_ms in zip(log.segments, (NOW_MS - age_ms, NOW_MS), strict=False):
                segment.set_last_modified(modified_ms)
            cleaner.clean(to_clean(log, first_dirty, first_dirty + 1))
            assert [found.offset for found in all_records(log)] == expected

    def test_unkeyed(self, tmp_path: Path) -> None:
        """LogCleanerTest.testCleaningWithUnkeyedMessages."""
        log = compacted_log(tmp_path, cleanup_policy="delete")
        while len(log.segments) < 2:
            append(log, None, log.log_end_offset)
        size, unkeyed = log.size_bytes, log.log_end_offset
        fill(log, 3)
        expected = log.size_bytes - size
        result = make_cleaner().clean(to_clean(log))
        assert result is not None
        assert not [found for found in all_records(log) if found.key is None]
        assert log.size_bytes == expected
        assert result.stats.invalid_messages_read == unkeyed

    @pytest.mark.parametrize("codec", list(Codec))
    def test_codecs(self, tmp_path: Path, codec: Codec) -> None:
        """What stays keeps offset, time and codec."""
        log = compacted_log(tmp_path, segment_bytes=1 << 20)
        for _ in range(3):
            log.append_as_leader(compressed([*range(20), *range(10)], codec), 0)
        log.roll()
        before = {found.offset: found for found in all_records(log)}
        assert clean(make_cleaner(), log) == 90
        after = all_records(log)
        assert [found.offset for found in after] == [*range(70, 80), *range(80, 90)]
        assert after == [before[found.offset] for found in after]
        assert {header.codec for header in headers(log)} == {codec}
        assert [(header.base_offset, header.last_offset) for header in headers(log)] == [(60, 89)]

    @pytest.mark.parametrize("magic", [0, 1])
    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
    def test_old_formats(self, tmp_path: Path, magic: int, codec: Codec) -> None:
        log = compacted_log(tmp_path, segment_bytes=1 << 20, message_format_version="0.10.0" if magic else "0.9.0")
        for start in (0, 6):
            records = [Record(start + i, NOW_MS + i, CREATE_TIME, b"%d" % (i % 4), b"%d" % i) for i in range(6)]
            log.append_as_follower(build_message_set(records, magic, codec=codec))
        log.roll()
        before = {found.offset: found for found in all_records(log)}
        clean(make_cleaner(), log)
        after = all_records(log)
        assert [found.offset for found in after] == [8, 9, 10, 11]
        assert after == [before[found.offset] for found in after]

    def test_largest_timestamp_goes_down(self, tmp_path: Path) -> None:
        """The time index of what is left: §15. Time search finds what is there."""
        log = compacted_log(tmp_path, segment_bytes=1 << 20, index_interval_bytes=1)
        append(log, 1, 1, NOW_MS + 5000)
        append(log, 2, 2, NOW_MS)
        append(log, 3, 3, NOW_MS + 1000)
        append(log, 1, 1, NOW_MS + 500)
        log.roll()
        assert time_entries(log.directory, 0)[-1] == (NOW_MS + 5000, 0)
        clean(make_cleaner(), log)
        segment = log.segments.first
        assert segment is not None
        assert segment.largest_timestamp == NOW_MS + 1000
        assert time_entries(log.directory, 0) == [(NOW_MS + 1000, 2)]
        assert log.fetch_offset_by_timestamp(NOW_MS + 2000) is None
        found = log.fetch_offset_by_timestamp(NOW_MS + 200)
        assert found is not None
        assert (found.offset, found.timestamp) == (2, NOW_MS + 1000)

    def test_log_append_time(self, tmp_path: Path) -> None:
        log = compacted_log(tmp_path, segment_bytes=1 << 20, message_timestamp_type="LogAppendTime")
        log.append_as_leader(compressed([1, 2, 1], Codec.NONE), 0)
        log.roll()
        clean(make_cleaner(), log)
        assert [(found.offset, found.timestamp) for found in all_records(log)] == [(1, NOW_MS), (2, NOW_MS)]

    def test_reopened(self, tmp_path: Path) -> None:
        """What a compaction leaves is a log like any other; snapshots of bases that are gone go too."""
        log = compacted_log(tmp_path)
        fill(log, 6, keys=7)
        log.flush()
        end, active = log.log_end_offset, log.segments.active.base_offset
        clean(make_cleaner(), log)
        before = all_records(log)
        bases = log.segments.base_offsets
        log.scheduler.shutdown()
        log.close()
        for is_clean in (True, False):
            again = compacted_log(tmp_path, clean=is_clean)
            assert all_records(again) == before
            assert again.log_end_offset == end
            assert again.segments.base_offsets == bases
            assert bases[-1] == active
            again.close()
        snapshots = {int(path.stem) for path in log.directory.glob("*.snapshot")}
        assert snapshots <= {*bases, end}


class TestProducers:
    def test_last_sequence(self, tmp_path: Path) -> None:
        """LogCleanerTest.testLogCleanerRetainsProducerLastSequence."""
        log = compacted_log(tmp_path)
        append(log, 0, 0)
        append_by(log, 1, 0, 0)
        append_by(log, 2, 0, 0)
        append_by(log, 3, 0, 0)
        append_by(log, 2, 1, 1)
        log.roll()
        clean(make_cleaner(), log)
        assert batch_last_offsets(log) == [1, 3, 4]
        assert last_sequences(log) == {1: 0, 2: 1, 3: 0}
        assert keys(log) == [0, 1]
        assert offsets_with_values(log) == [3, 4]

    def test_duplicates_after_compaction(self, tmp_path: Path) -> None:
        """LogCleanerTest.testDuplicateCheckAfterCleaning."""
        log = compacted_log(tmp_path, segment_bytes=2048)
        cleaner = make_cleaner()

        def write(producer_id: int, *keys: int) -> tuple[int, int]:
            info = producer(log, producer_id, transactional=False)(*keys)
            return info.first_offset, info.last_offset

        write(1, 1, 2, 3)
        write(2, 3, 1, 4)
        write(3, 1, 4)
        log.roll()
        clean(cleaner, log)
        assert batch_last_offsets(log) == [2, 5, 7]
        assert last_sequences(log) == {1: 2, 2: 2, 3: 1}
        assert keys(log) == [2, 3, 1, 4]
        assert offsets_with_values(log) == [1, 3, 6, 7]

        log.close()
        log = compacted_log(tmp_path, segment_bytes=2048, clean=False)
        assert write(1, 1, 2, 3) == (0, 2)
        assert write(3, 1, 4) == (6, 7)
        assert write(2, 3, 1, 4) == (3, 5)
        write(4, 2)
        log.roll()
        clean(cleaner, log)
        assert last_sequences(log) == {1: 2, 2: 2, 3: 1, 4: 0}
        assert batch_last_offsets(log) == [2, 5, 7, 8]
        assert keys(log) == [3, 1, 4, 2]
        assert offsets_with_values(log) == [3, 6, 7, 8]

        log.close()
        log = compacted_log(tmp_path, segment_bytes=2048, clean=False)
        assert write(1, 1, 2, 3) == (0, 2)

    def test_expired_producer(self, tmp_path: Path) -> None:
        """A producer that the log has forgotten leaves no empty batch."""
        clock = ManualClock(NOW_MS)
        log = compacted_log(tmp_path, clock)
        log.append_as_leader(build_batch_v2([Record(0, NOW_MS, CREATE_TIME, b"0", b"0")], producer=Producer(1, 0, 0)), 0)
        append(log, 0, 1)
        log.roll()
        clock.advance(10 * DELETE_RETENTION_MS)
        log.remove_expired_producers()
        clean(make_cleaner(clock=clock), log)
        assert batch_last_offsets(log) == [1]


def test_nothing_aborted(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    fill(log, 3, keys=3)
    clean(make_cleaner(), log)
    assert aborted(log) == []
    assert not list(log.directory.glob("*.txnindex"))
