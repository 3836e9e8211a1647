"""One segment, written: LogSegmentTest. Its files and full disks are in `test_segment_files`, recovery in `test_recovery`."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.storage.partition_logs import has_overflow
from tests.storage.segment_files import (
    batch,
    bytes_of,
    messages,
    offsets,
    open_segment,
    put,
    roll_params,
)
from tidelog.clock import ManualClock
from tidelog.config import INT64_MAX, LogConfig
from tidelog.errors import CorruptBatchError, InvalidArgumentError, OffsetOverflowError
from tidelog.formats.offset_index import OffsetPosition
from tidelog.reader.producer_state import CompletedTxn
from tidelog.records.batch import iter_headers
from tidelog.records.compression import Codec
from tidelog.records.legacy import build_message_set
from tidelog.records.records import Record
from tidelog.storage.loading.overflow import append_from_file
from tidelog.storage.partition.offset_metadata import LogOffsetMetadata
from tidelog.storage.segment.log_segment import LogSegment
from tidelog.storage.segment.segment_reader import WALK_READ_BYTES
from tidelog.storage.segment.walked_headers import POINT_BYTES

INT32_MAX = 2**31 - 1
HELLO_BYTES = len(messages(0, "hello"))
EVERY_SECOND = LogConfig(index_interval_bytes=2 * HELLO_BYTES - 1, segment_index_bytes=1000)


class TestAppend:
    @pytest.mark.parametrize(
        ("base", "largest"),
        [(0, -(2**31)), (0, 2**31), (1, 0), (100, 10), (2**31, 0), (-(2**31), 0), (2**31, 2**32)],
    )
    def test_append_for_log_segment_offset_overflow_exception(self, tmp_path: Path, base: int, largest: int) -> None:
        """LogSegmentTest.testAppendForLogSegmentOffsetOverflowException"""
        segment = open_segment(tmp_path, base)
        data = messages(0, "hello")
        with pytest.raises(OffsetOverflowError):
            segment.append(largest, list(iter_headers(data)), data)
        assert segment.size_bytes == 0
        segment.close()

    def test_nothing_to_append(self, tmp_path: Path) -> None:
        segment = open_segment(tmp_path)
        segment.append(5, [], b"")
        assert segment.size_bytes == 0
        segment.close()

    def test_interval_is_checked_before_the_batch_counts(self, tmp_path: Path) -> None:
        """KAFKA-806: the bytes before a batch must exceed the interval, and the batch that gets the entry counts again."""
        exact = open_segment(tmp_path, 0, LogConfig(index_interval_bytes=2 * HELLO_BYTES))
        less = open_segment(tmp_path, 100, EVERY_SECOND)
        for i in range(8):
            put(exact, messages(i, "hello", timestamp=7))
            put(less, messages(100 + i, "hello", timestamp=7))
        assert [exact.offset_index.entry(slot).offset for slot in range(exact.offset_index.entries)] == [3, 6]
        assert [less.offset_index.entry(slot) for slot in range(less.offset_index.entries)] == [
            (102, 2 * HELLO_BYTES),
            (104, 4 * HELLO_BYTES),
            (106, 6 * HELLO_BYTES),
        ]
        assert less.time_index.to_bytes() == (7).to_bytes(8, "big") + bytes(4)  # one: of the first that reached it
        exact.close()
        less.close()

    def test_batches_one_by_one_or_at_once(self, tmp_path: Path) -> None:
        """KAFKA-806: one append of many batches, a follower's, leaves the same files as one append for each."""
        parts = [batch(3 * i, [1000 + 7 * i % 50] * 3) for i in range(40)]
        config = LogConfig(index_interval_bytes=200, segment_index_bytes=1200)
        for name, runs in (("one", [parts]), ("some", [parts[:1], parts[1:7], parts[7:]]), ("each", [[part] for part in parts])):
            folder = tmp_path / name
            folder.mkdir()
            segment = open_segment(folder, 0, config)
            for run in runs:
                put(segment, *run)
            segment.on_become_inactive()
            segment.close()
        for suffix in (".log", ".index", ".timeindex"):
            assert len({bytes_of(tmp_path / name, 0, suffix) for name in ("one", "some", "each")}) == 1

    def test_an_index_that_fills_within_one_append(self, tmp_path: Path) -> None:
        """Kafka throws there; here what there is no room for is left out, and everything is found all the same."""
        segment = open_segment(tmp_path, 0, LogConfig(index_interval_bytes=0, segment_index_bytes=60))
        put(segment, *(batch(i, [1000 + i]) for i in range(50)))
        assert (segment.offset_index.entries, segment.time_index.entries) == (7, 4)
        assert (segment.offset_index.is_full, segment.time_index.is_full) == (True, True)
        segment.on_become_inactive()
        assert segment.time_index.last_entry == (1049, 49)
        assert [offsets(segment.read(i, 1, min_one_message=True)) for i in range(50)] == [[i] for i in range(50)]
        assert [segment.find_offset_by_timestamp(1000 + i, 0) for i in range(50)] == [(1000 + i, i, -1) for i in range(50)]
        segment.close()

    def test_append_from_file(self, tmp_path: Path) -> None:
        """LogSegmentTest.testAppendFromFile"""
        source = open_segment(tmp_path, 0, suffix=".source")
        # What no segment can tell is put into the file itself, as older releases have done.
        at = [0, 1, 5, INT32_MAX - 5, INT32_MAX + 5, INT32_MAX + 10]
        source.log.append(b"".join(messages(offset, "hello") for offset in at))
        first, second = open_segment(tmp_path, 0), open_segment(tmp_path, INT32_MAX)
        copied = append_from_file(first, source.log, 0)
        assert copied == 4 * HELLO_BYTES
        assert append_from_file(second, source.log, copied) == 2 * HELLO_BYTES
        assert append_from_file(second, source.log, source.size_bytes) == 0
        assert [header.last_offset for segment in (first, second) for header in segment.batches()] == at
        assert first.read_next_offset() == INT32_MAX - 4
        assert (has_overflow(first), has_overflow(source)) == (False, True)
        for segment in (first, second, source):
            segment.close()

    def test_append_from_file_in_pieces(self, tmp_path: Path) -> None:
        """At most 1 MiB at a time, a larger batch alone; what precedes damage is copied before that is reported."""
        source, target = open_segment(tmp_path, 0, suffix=".source"), open_segment(tmp_path)
        sizes = [400_000, 400_000, 400_000, 3_000_000, 10, 10]
        parts = [batch(i, [i], value=bytes(size)) for i, size in enumerate(sizes)]
        put(source, *parts)
        assert append_from_file(target, source.log, 0) == source.size_bytes
        assert target.log.read(0, 10**8) == b"".join(parts)
        target.truncate_to(0)
        source.log.append(bytes(100))
        with pytest.raises(CorruptBatchError):
            append_from_file(target, source.log, 0)
        assert target.log.read(0, 10**8) == b"".join(parts)
        for segment in (source, target):
            segment.close()

    def test_update_txn_index(self, tmp_path: Path) -> None:
        segment = open_segment(tmp_path)
        segment.update_txn_index(CompletedTxn(7, 0, 5, is_aborted=False), 6)
        assert not segment.txn_index.path.exists()
        segment.update_txn_index(CompletedTxn(8, 2, 9, is_aborted=True), 1)
        assert segment.collect_aborted_txns(0, 100).aborted == [(8, 2, 9, 1)]
        segment.close()


class TestRead:
    def test_read_on_empty_segment(self, tmp_path: Path) -> None:
        """LogSegmentTest.testReadOnEmptySegment"""
        segment = open_segment(tmp_path, 40)
        assert segment.read(40, 300) is None
        segment.close()

    def test_read_before_first_offset(self, tmp_path: Path) -> None:
        """LogSegmentTest.testReadBeforeFirstOffset"""
        segment = open_segment(tmp_path, 40)
        data = messages(50, "hello", "there", "little", "bee")
        put(segment, data)
        fetched = segment.read(41, 300)
        assert fetched is not None
        assert bytes(fetched.data) == data
        segment.close()

    def test_read_after_last(self, tmp_path: Path) -> None:
        """LogSegmentTest.testReadAfterLast"""
        segment = open_segment(tmp_path, 40)
        put(segment, messages(50, "hello", "there"))
        assert segment.read(52, 200) is None
        segment.close()

    def test_read_from_gap(self, tmp_path: Path) -> None:
        """LogSegmentTest.testReadFromGap"""
        segment = open_segment(tmp_path, 40)
        put(segment, messages(50, "hello", "there"))
        put(segment, messages(60, "alpha", "beta"))
        assert offsets(segment.read(55, 200)) == [60, 61]
        segment.close()

    @pytest.mark.parametrize("min_one_message", [True, False])
    def test_read_when_no_max_position(self, tmp_path: Path, min_one_message: bool) -> None:
        """LogSegmentTest.testReadWhenNoMaxPosition"""
        segment = open_segment(tmp_path, 40)
        put(segment, messages(50, "hello", "there"))
        for offset, position in ((48, 0), (50, 0), (51, 39)):
            fetched = segment.read(offset, 300, None, min_one_message)
            assert fetched is not None
            assert (fetched.metadata, bytes(fetched.data)) == (LogOffsetMetadata(offset, 40, position), b"")
        assert segment.read(52, 300, None, min_one_message) is None
        assert segment.read(53, 300, None, min_one_message) is None
        segment.close()

    def test_sizes(self, tmp_path: Path) -> None:
        """Spec §4.5: from a batch's start; may end within a batch; the first one whole if that is wanted."""
        segment = open_segment(tmp_path)
        parts = [batch(3 * i, [i, i, i]) for i in range(3)]
        put(segment, *parts)
        size = len(parts[0])

        def read(*arguments: int, **more: bool) -> tuple[bytes, bool]:
            fetched = segment.read(*arguments, **more)
            assert fetched is not None
            return bytes(fetched.data), fetched.first_entry_incomplete

        assert read(4, 10**6) == (parts[1] + parts[2], False)
        assert read(4, size + 5) == (parts[1] + parts[2][:5], False)
        assert read(4, size - 1) == (parts[1][:-1], True)
        assert read(4, size - 1, min_one_message=True) == (parts[1], False)
        assert read(4, 0, min_one_message=True) == (parts[1], False)
        assert read(4, 0) == (b"", False)
        assert read(4, 10**6, 2 * size) == (parts[1], False)
        assert read(4, 10**6, size + 7) == (parts[1][:7], False)
        assert read(4, 10**6, 3) == (b"", False)  # a high watermark below the batch
        with pytest.raises(InvalidArgumentError):
            segment.read(4, -1)
        segment.close()

    def test_translate_offset(self, tmp_path: Path) -> None:
        segment = open_segment(tmp_path)
        put(segment, *(batch(3 * i, [i, i, i]) for i in range(20)))
        size = segment.size_bytes // 20
        for offset in range(60):
            assert segment.translate_offset(offset) == (offset // 3 * 3 + 2, offset // 3 * size, size)
        assert segment.translate_offset(60) is None
        assert segment.translate_offset(0, start=5 * size) == (17, 5 * size, size)
        assert segment.translate_offset(50, start=size) == (50, 16 * size, size)
        segment.close()

    def test_large_batches_are_found_by_two_headers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A consumer that reads on asks for the batch behind the one that the index names, whatever the sizes of the two."""
        segment = open_segment(tmp_path, config=LogConfig())
        for i in range(8):
            put(segment, batch(2 * i, [i, i], value=bytes(POINT_BYTES)))
        read_sizes: list[int] = []
        pread = os.pread

        def counted(fd: int, length: int, position: int) -> bytes:
            read_sizes.append(length)
            return pread(fd, length, position)

        monkeypatch.setattr(os, "pread", counted)
        size = segment.size_bytes // 8
        for offset in range(2, 16):
            read_sizes.clear()
            assert segment.translate_offset(offset) == (offset // 2 * 2 + 1, offset // 2 * size, size)
            assert len(read_sizes) <= 2
            assert max(read_sizes) <= WALK_READ_BYTES
        segment.close()

    def test_fetch_upper_bound_offset(self, tmp_path: Path) -> None:
        segment = open_segment(tmp_path)
        put(segment, *(messages(i, "hello") for i in range(10)))
        assert segment.fetch_upper_bound_offset(OffsetPosition(0, 0), HELLO_BYTES) == 1
        assert segment.fetch_upper_bound_offset(OffsetPosition(0, 0), HELLO_BYTES + 1) == 2
        assert segment.fetch_upper_bound_offset(OffsetPosition(9, 9 * HELLO_BYTES), 1) is None
        segment.close()

    @pytest.mark.parametrize("lie", [(3, 10**6), (3, 7), (3, 5 * HELLO_BYTES), (INT32_MAX, 1), (0, 9 * HELLO_BYTES)], ids=str)
    def test_an_offset_index_that_lies(self, tmp_path: Path, lie: tuple[int, int], caplog: pytest.LogCaptureFixture) -> None:
        """An entry that does not point to a batch costs a warning and a walk, no answer."""
        parts = [batch(i, [10 * i], value=b"") for i in range(10)]
        segment = open_segment(tmp_path)
        put(segment, *parts)
        segment.close()
        entry = lie[0].to_bytes(4, "big") + (lie[1] * len(parts[0]) // HELLO_BYTES).to_bytes(4, "big")
        (tmp_path / f"{0:020d}.index").write_bytes(entry)
        segment = open_segment(tmp_path, file_already_exists=True)
        assert [offsets(segment.read(i, 1, min_one_message=True)) for i in range(10)] == [[i] for i in range(10)]
        assert segment.read_next_offset() == 10
        assert [segment.find_offset_by_timestamp(10 * i, 0) for i in range(10)] == [(10 * i, i, -1) for i in range(10)]
        assert "does not point to a batch" in caplog.text or lie[0] == INT32_MAX
        segment.close()

    def test_next_offset_calculation(self, tmp_path: Path) -> None:
        """LogSegmentTest.testNextOffsetCalculation"""
        segment = open_segment(tmp_path, 40)
        assert segment.read_next_offset() == 40
        put(segment, messages(50, "hello", "there", "you"))
        assert segment.read_next_offset() == 53
        segment.close()


class TestTime:
    def test_find_offset_by_timestamp(self, tmp_path: Path) -> None:
        """LogSegmentTest.testFindOffsetByTimestamp"""
        size = len(messages(0, "msg00"))
        segment = open_segment(tmp_path, 40, LogConfig(index_interval_bytes=2 * size - 1, segment_index_bytes=1000))
        for i in range(40, 50):
            put(segment, messages(i, f"msg{i}"))
        assert segment.largest_timestamp == segment.largest_record_timestamp == 490
        for target, offset in ((420, 42), (421, 43), (430, 43), (431, 44), (401, 41), (399, 40)):
            found = segment.find_offset_by_timestamp(target)
            assert found is not None
            assert found.offset == offset
        assert segment.find_offset_by_timestamp(491) is None
        segment.close()

    def test_search_for_timestamp(self, tmp_path: Path) -> None:
        """FileRecordsTest.testSearchForTimestamp: with the batch's leader epoch, which formats before v2 do not have"""
        for folder, epochs, build in (
            ("v2", (0, 1), lambda offset, time, epoch: batch(offset, [time], epoch=epoch)),
            ("v1", (-1, -1), lambda offset, time, epoch: messages(offset, "a", timestamp=time)),
        ):
            (tmp_path / folder).mkdir()
            segment = open_segment(tmp_path / folder)
            put(segment, build(5, 10, 0), build(6, 11, 1))
            found = [segment.find_offset_by_timestamp(time, 0) for time in (9, 10, 11, 12)]
            assert found == [(10, 5, epochs[0]), (10, 5, epochs[0]), (11, 6, epochs[1]), None]
            segment.close()

    def test_starting_offset(self, tmp_path: Path) -> None:
        """KIP-107: what lies below the log start is no answer."""
        segment = open_segment(tmp_path)
        put(segment, *(batch(3 * i, [100 * i + 5, 100 * i, 100 * i + 50]) for i in range(10)))
        assert segment.find_offset_by_timestamp(0, 4) == (100, 4, -1)
        assert segment.find_offset_by_timestamp(0, 29) == (950, 29, -1)
        assert segment.find_offset_by_timestamp(120, 3) == (150, 5, -1)
        assert segment.find_offset_by_timestamp(0, 30) is None
        segment.close()

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])
    def test_inside_compressed_messages(self, tmp_path: Path, codec: Codec) -> None:
        segment = open_segment(tmp_path)
        for i in range(5):
            records = [Record(4 * i + j, 1000 * i + 10 * j, 0, None, b"x" * 50) for j in range(4)]
            put(segment, bytes(build_message_set(records, 1, codec=codec)))
        for i, j in itertools.product(range(5), range(4)):
            assert segment.find_offset_by_timestamp(1000 * i + 10 * j - 3, 0) == (1000 * i + 10 * j, 4 * i + j, -1)
        segment.close()

    def test_without_timestamps_the_file_time_counts(self, tmp_path: Path) -> None:
        """Spec §3: largestTimestamp falls back to the modification time, largestRecordTimestamp to none."""
        segment = open_segment(tmp_path)
        put(segment, messages(0, "a", "b", magic=0))
        segment.set_last_modified(1_234_567)
        assert (segment.largest_timestamp, segment.largest_record_timestamp) == (1_234_567, None)
        assert segment.max_timestamp_and_offset_so_far == (-1, 0)
        segment.on_become_inactive()
        assert bytes_of(tmp_path, 0, ".timeindex") == b""
        segment.close()

    def test_timestamps_that_go_back(self, tmp_path: Path) -> None:
        """The largest so far, and the offset of the batch that first had it, whatever comes later."""
        segment = open_segment(tmp_path)
        for i, time in enumerate((100, 300, 200, 300, 50, 0)):
            put(segment, batch(2 * i, [time, time - 1 if time else 0]))
        assert segment.max_timestamp_and_offset_so_far == (300, 3)
        segment.on_become_inactive()
        assert segment.time_index.to_bytes() == (300).to_bytes(8, "big") + (3).to_bytes(4, "big")
        segment.close()

    def test_timestamp_zero(self, tmp_path: Path) -> None:
        segment = open_segment(tmp_path)
        put(segment, batch(0, [0]))
        segment.close()
        segment = open_segment(tmp_path, file_already_exists=True)
        assert (segment.largest_timestamp, segment.max_timestamp_and_offset_so_far) == (0, (0, 0))
        segment.close()

    def test_get_first_batch_timestamp(self, tmp_path: Path) -> None:
        """LogSegmentTest.testGetFirstBatchTimestamp"""
        segment = open_segment(tmp_path, 1)
        assert segment.first_batch_timestamp == INT64_MAX
        put(segment, batch(1, [1000]))
        assert segment.first_batch_timestamp == 1000
        put(segment, batch(2, [500]))
        segment.close()
        assert open_segment(tmp_path, 1, file_already_exists=True).first_batch_timestamp == 1000

    def test_first_batch_without_timestamp(self, tmp_path: Path) -> None:
        segment = open_segment(tmp_path)
        put(segment, messages(0, "a", magic=0))
        put(segment, batch(1, [1000]))
        assert segment.first_batch_timestamp == INT64_MAX
        segment.close()

    def test_largest_timestamp_behind_the_last_entry(self, tmp_path: Path) -> None:
        """Retention does not take the index's word: the batches after its last entry are read, and a larger one is kept."""
        segment = open_segment(tmp_path, 0, LogConfig(index_interval_bytes=0))
        put(segment, *(batch(i, [1000 + i]) for i in range(10)))
        segment.close()
        os.truncate(segment.time_index.path, 3 * 12)
        segment = open_segment(tmp_path, file_already_exists=True)
        assert segment.max_timestamp_and_offset_so_far == (1003, 3)
        assert segment.check_largest_timestamp() == segment.max_timestamp_and_offset_so_far == (1009, 9)
        segment.close()


class TestRoll:
    def roll(
        self, segment: LogSegment, config: LogConfig, offset: int = 5, time: int = -1, now: int = 0, size: int = 100
    ) -> bool:
        return segment.should_roll(roll_params(segment, config, offset, time, now, size))

    def test_size(self, tmp_path: Path) -> None:
        """Spec §4.1 a: a segment may become exactly segment.bytes."""
        config = LogConfig(segment_bytes=1000)
        segment = open_segment(tmp_path, 0, config)
        assert not self.roll(segment, config, size=1000)
        assert self.roll(segment, config, size=1001)
        put(segment, messages(0, "hello"))
        assert not self.roll(segment, config, size=1000 - HELLO_BYTES)
        assert self.roll(segment, config, size=1001 - HELLO_BYTES)
        segment.close()

    def test_event_time(self, tmp_path: Path) -> None:
        """Spec §4.1 b: since the first batch's largest timestamp; the clock does not matter, nor what comes out of order."""
        config = LogConfig(segment_ms=1000)
        segment = open_segment(tmp_path, 0, config)
        assert not self.roll(segment, config, time=10**9, now=10**9)  # an empty segment never rolls by time
        put(segment, batch(0, [100, 300, 200]))
        assert not self.roll(segment, config, time=1300, now=10**9)
        assert self.roll(segment, config, time=1301)
        assert not self.roll(segment, config, time=5, now=10**9)
        assert not self.roll(segment, config, time=-1, now=10**9)
        segment.close()
        reopened = open_segment(tmp_path, 0, config, ManualClock(10**9), file_already_exists=True)
        reopened.resize_indexes()
        assert (self.roll(reopened, config, time=1300), self.roll(reopened, config, time=1301)) == (False, True)
        assert reopened.time_waited_for_roll(5, 1234) == 934
        reopened.close()

    def test_wall_clock_where_the_first_batch_has_no_timestamp(self, tmp_path: Path) -> None:
        config, clock = LogConfig(segment_ms=1000), ManualClock(50)
        segment = open_segment(tmp_path, 0, config, clock)
        put(segment, messages(0, "a", magic=0))
        assert not self.roll(segment, config, time=10**9, now=1050)
        assert self.roll(segment, config, time=0, now=1051)
        segment.close()
        clock.advance(5000)  # after a restart, the wait starts over
        reopened = open_segment(tmp_path, 0, config, clock, file_already_exists=True)
        assert reopened.time_waited_for_roll(clock.now_ms(), 0) == 0
        reopened.close()

    def test_compaction_lag_bounds_the_wait(self, tmp_path: Path) -> None:
        """Spec §4.1: a compacted log's segments roll after max.compaction.lag.ms if that is less."""
        config = LogConfig(segment_ms=1000, cleanup_policy="compact", max_compaction_lag_ms=200)
        segment = open_segment(tmp_path, 0, config)
        put(segment, batch(0, [100]))
        assert (self.roll(segment, config, time=300), self.roll(segment, config, time=301)) == (False, True)
        segment.close()

    def test_jitter(self, tmp_path: Path) -> None:
        config = LogConfig(segment_ms=1000, segment_jitter_ms=400)
        segments = [open_segment(tmp_path, base, config, jitter=random.Random(base)) for base in range(50)]
        jitters = [segment.roll_jitter_ms for segment in segments]
        assert min(jitters) >= 0
        assert max(jitters) < 400
        assert len(set(jitters)) > 20
        put(segments[0], batch(0, [100]))
        waited = 1000 - jitters[0]
        assert not self.roll(segments[0], config, time=100 + waited)
        assert self.roll(segments[0], config, time=101 + waited)
        capped = LogConfig(segment_ms=10, segment_jitter_ms=10**9)
        assert open_segment(tmp_path, 99, capped).roll_jitter_ms < 10
        for segment in segments:
            segment.close_handlers()

    def test_full_indexes(self, tmp_path: Path) -> None:
        """Spec §4.1 c, d: 36 bytes are four slots of the one, three of the other, whose last is reserved."""
        config = LogConfig(segment_index_bytes=36, index_interval_bytes=0)
        timed, timeless = open_segment(tmp_path, 0, config), open_segment(tmp_path, 100, config)
        for i, full in enumerate((False, False, False, True)):
            assert self.roll(timed, config) == full
            put(timed, batch(i, [i + 1]))
        for i, full in enumerate((False, False, False, False, False, True)):
            assert self.roll(timeless, config, offset=105) == full
            put(timeless, messages(100 + i, "a", magic=0))
        timed.close()
        timeless.close()

    def test_offsets(self, tmp_path: Path) -> None:
        """Spec §4.1 e"""
        config = LogConfig()
        segment = open_segment(tmp_path, 100, config)
        for offset, rolls in ((100 + INT32_MAX, False), (101 + INT32_MAX, True), (99, True), (100, False)):
            assert self.roll(segment, config, offset=offset) == rolls
        segment.close()

    def test_indexes_are_made_by_the_first_question(self, tmp_path: Path) -> None:
        """As Kafka's, which is why a segment that was rolled to and not used has its `.log` only (spec §1)."""
        segment = open_segment(tmp_path)
        assert [path.exists() for path in segment.paths] == [True, False, False, False]
        assert not self.roll(segment, LogConfig())
        assert [path.exists() for path in segment.paths] == [True, True, True, False]
        segment.close()


class TestTruncate:
    def test_truncate(self, tmp_path: Path) -> None:
        """LogSegmentTest.testTruncate"""
        segment = open_segment(tmp_path, 40)
        for offset in range(40, 70):
            put(segment, messages(offset, "hello"))
            put(segment, messages(offset + 1, "hello"))
            assert offsets(segment.read(offset, 10000)) == [offset, offset + 1]
            assert segment.truncate_to(offset + 1) == HELLO_BYTES
            assert offsets(segment.read(offset, 10000)) == [offset]
        segment.close()

    def test_truncate_empty_segment(self, tmp_path: Path) -> None:
        """LogSegmentTest.testTruncateEmptySegment"""
        clock = ManualClock(0)
        config = LogConfig(segment_ms=300_000, segment_index_bytes=1000)
        open_segment(tmp_path, 0, config, clock).close()
        segment = open_segment(tmp_path, 0, config, clock)
        assert (segment.time_index.size_bytes, segment.offset_index.size_bytes) == (0, 0)
        clock.advance(500)
        assert segment.truncate_to(57) == 0
        assert segment.time_waited_for_roll(clock.now_ms(), -1) == 0
        assert not segment.time_index.is_full
        assert not segment.offset_index.is_full
        assert not segment.should_roll(roll_params(segment, config, 100, -1, clock.now_ms(), 1024))
        clock.advance(300_001)
        assert segment.time_waited_for_roll(clock.now_ms(), -1) == 300_001
        assert not segment.should_roll(roll_params(segment, config, 100, -1, clock.now_ms(), 1024))
        assert segment.should_roll(roll_params(segment, config, INT32_MAX + 200, -1, clock.now_ms(), 1024))
        segment.close()

    def test_empty_segment_with_trimmed_indexes(self, tmp_path: Path) -> None:
        """KAFKA-6492: indexes of no entries, as a roll leaves them, would be full for good."""
        segment = open_segment(tmp_path)
        segment.on_become_inactive()
        segment.close()
        segment = open_segment(tmp_path, file_already_exists=True)
        assert segment.offset_index.is_full
        segment.truncate_to(0)
        assert (segment.offset_index.is_full, segment.time_index.is_full) == (False, False)
        assert [path.stat().st_size for path in segment.paths[1:3]] == [1000, 996]
        segment.close()

    def test_reload_largest_timestamp_and_next_offset_after_truncation(self, tmp_path: Path) -> None:
        """LogSegmentTest.testReloadLargestTimestampAndNextOffsetAfterTruncation"""
        segment = open_segment(tmp_path, 40, EVERY_SECOND)
        for offset in range(40, 70):
            put(segment, messages(offset, "hello"))
        assert segment.read_next_offset() == 70
        assert segment.time_index.entries == 30 // 2 - 1
        segment.truncate_to(41)
        assert (segment.time_index.entries, segment.largest_timestamp, segment.read_next_offset()) == (0, 400, 41)
        segment.close()

    @pytest.mark.parametrize("close", [LogSegment.close, LogSegment.on_become_inactive])
    def test_largest_timestamp_of_a_segment_nobody_asked(self, tmp_path: Path, close: Callable[[LogSegment], None]) -> None:
        """As Kafka forgets it there (the entries are gone, and the largest was never looked up), but does not say."""
        segment = open_segment(tmp_path, 40, EVERY_SECOND)
        for offset in range(40, 70):
            put(segment, messages(offset, "hello"))
        close(segment)
        segment.close()
        segment = open_segment(tmp_path, 40, EVERY_SECOND, file_already_exists=True)
        segment.truncate_to(41)
        assert segment.largest_record_timestamp == 400
        segment.close()

    def test_truncate_full(self, tmp_path: Path) -> None:
        """LogSegmentTest.testTruncateFull"""
        clock = ManualClock(0)
        segment = open_segment(tmp_path, 40, LogConfig(segment_ms=300_000, segment_index_bytes=1000), clock)
        put(segment, messages(40, "hello", "there", timestamp=-1))
        clock.advance(500)
        assert segment.time_waited_for_roll(clock.now_ms(), -1) == 500
        assert segment.truncate_to(0) == 2 * HELLO_BYTES
        assert segment.time_waited_for_roll(clock.now_ms(), -1) == 0
        assert not segment.time_index.is_full
        assert not segment.offset_index.is_full
        assert segment.read(0, 1024) is None
        put(segment, messages(40, "hello", "there"))
        assert segment.time_waited_for_roll(clock.now_ms(), 450) == 50
        segment.close()

    def test_should_truncate_even_if_offset_points_to_a_gap_in_the_log(self, tmp_path: Path) -> None:
        """LogSegmentTest.shouldTruncateEvenIfOffsetPointsToAGapInTheLog"""
        segment = open_segment(tmp_path, 40)
        put(segment, messages(40, "first message"))
        put(segment, messages(43, "message after gap"))
        segment.truncate_to(41)
        assert offsets(segment.read(40, 10000)) == [40]
        segment.close()

    def test_within_a_batch_the_whole_batch_goes(self, tmp_path: Path) -> None:
        """Spec §4.8: a batch is never cut, although part of it lies below the offset."""
        segment = open_segment(tmp_path)
        parts = [batch(10 * i, [i] * 10) for i in range(3)]
        put(segment, *parts)
        assert segment.truncate_to(15) == len(parts[1]) + len(parts[2])
        assert segment.read_next_offset() == 10
        segment.close()

    def test_behind_the_end(self, tmp_path: Path) -> None:
        segment = open_segment(tmp_path)
        put(segment, batch(0, [5]), batch(1, [6]))
        assert segment.truncate_to(2) == 0
        assert (segment.read_next_offset(), segment.largest_timestamp) == (2, 6)
        segment.close()

    def test_the_next_entry_needs_the_whole_interval(self, tmp_path: Path) -> None:
        segment = open_segment(tmp_path, 0, EVERY_SECOND)
        for i in range(4):
            put(segment, messages(i, "hello"))
        segment.truncate_to(3)
        for i in range(3, 8):
            put(segment, messages(i, "hello"))
        assert [segment.offset_index.entry(slot).offset for slot in range(segment.offset_index.entries)] == [2, 5, 7]
        segment.close()

    def test_a_rolled_segment_becomes_active_again(self, tmp_path: Path) -> None:
        segment = open_segment(tmp_path, 0, LogConfig(index_interval_bytes=0, segment_index_bytes=1000))
        put(segment, *(batch(i, [i]) for i in range(10)))
        segment.on_become_inactive()
        assert [path.stat().st_size for path in segment.paths[1:3]] == [72, 108]
        segment.truncate_to(5)
        assert [path.stat().st_size for path in segment.paths[1:3]] == [1000, 996]
        put(segment, *(batch(i, [100 + i]) for i in range(5, 10)))
        segment.on_become_inactive()
        assert segment.time_index.last_entry == (109, 9)
        assert [offsets(segment.read(i, 1, min_one_message=True)) for i in range(10)] == [[i] for i in range(10)]
        segment.close()
