"""Offsets by time in a log that is written: ListOffsets, as far as the log answers it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.storage.partition_logs import NOW_MS, batch, config, end_txn, messages, open_log, records, timed
from tidelog.errors import UnsupportedForMessageFormatError, UnsupportedVersionError
from tidelog.model import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP, NO_TIMESTAMP
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType
from tidelog.records.records import Record
from tidelog.storage.partition.leader_epoch_cache import LeaderEpochCache
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partition.watermarks import FetchIsolation

HIGH_WATERMARK, TXN_COMMITTED = FetchIsolation.HIGH_WATERMARK, FetchIsolation.TXN_COMMITTED


class TestByTimestamp:
    def test_fetch_offset_by_timestamp_includes_leader_epoch(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testFetchOffsetByTimestampIncludesLeaderEpoch."""
        log = open_log(tmp_path)
        assert log.fetch_offset_by_timestamp(0) is None
        log.append_as_leader(batch(timestamp=NOW_MS), 0)
        log.append_as_leader(batch(timestamp=NOW_MS + 1), 1)
        assert log.fetch_offset_by_timestamp(NOW_MS) == (NOW_MS, 0, 0)
        assert log.fetch_offset_by_timestamp(NOW_MS + 1) == (NOW_MS + 1, 1, 1)
        assert log.fetch_offset_by_timestamp(NOW_MS + 2) is None
        for earliest in (EARLIEST, EARLIEST_LOCAL):
            assert log.fetch_offset_by_timestamp(earliest) == (-1, 0, 0)
        assert log.fetch_offset_by_timestamp(LATEST) == (-1, 2, 1)
        log.maybe_assign_epoch_start_offset(2, 2)
        assert log.fetch_offset_by_timestamp(LATEST) == (-1, 2, 2)
        log.note_leader_epoch_soon(3, 2)
        assert log.fetch_offset_by_timestamp(LATEST) == (-1, 2, 3)
        assert LeaderEpochCache(log.directory).entries == log.leader_epochs.entries

    def test_fetch_offset_by_timestamp_with_max_timestamp_includes_timestamp(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testFetchOffsetByTimestampWithMaxTimestampIncludesTimestamp."""
        log = open_log(tmp_path)
        for timestamp in (NOW_MS, NOW_MS + 1, NOW_MS):
            log.append_as_leader(batch(timestamp=timestamp), 0)
        assert log.fetch_offset_by_timestamp(MAX_TIMESTAMP) == (NOW_MS + 1, 1, 0)

    def test_fetch_latest_tiered_timestamp_no_remote_storage(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testFetchLatestTieredTimestampNoRemoteStorage."""
        log = open_log(tmp_path)
        assert log.fetch_offset_by_timestamp(LATEST_TIERED) == (-1, -1, -1)
        log.append_as_leader(batch(), 0)
        assert log.fetch_offset_by_timestamp(LATEST_TIERED) == (-1, -1, -1)

    def test_fetch_offset_by_timestamp_for_max_timestamp_after_truncate(self, tmp_path: Path) -> None:
        """LogOffsetTest.testFetchOffsetByTimestampForMaxTimestampAfterTruncate."""
        log = open_log(tmp_path, segment_bytes=140)
        for timestamp in range(20):
            log.append_as_leader(batch(timestamp=timestamp), 0)
        log.flush()
        assert log.fetch_offset_by_timestamp(MAX_TIMESTAMP) == (19, 19, 0)
        log.truncate_to(0)
        assert log.log_end_offset == 0
        assert log.fetch_offset_by_timestamp(MAX_TIMESTAMP) is None

    def test_fetch_offset_by_timestamp_for_max_timestamp_with_unordered_timestamps(self, tmp_path: Path) -> None:
        """LogOffsetTest.testFetchOffsetByTimestampForMaxTimestampWithUnorderedTimestamps."""
        log = open_log(tmp_path, segment_bytes=140)
        for timestamp in (0, 1, 2, 3, 4, 6, 5):
            log.append_as_leader(batch(timestamp=timestamp), 0)
        assert log.fetch_offset_by_timestamp(MAX_TIMESTAMP) == (6, 5, 0)

    def test_fetch_offset_by_timestamp_for_max_timestamp_with_empty_log(self, tmp_path: Path) -> None:
        """LogOffsetTest.testFetchOffsetByTimestampForMaxTimestampWithEmptyLog."""
        assert open_log(tmp_path).fetch_offset_by_timestamp(MAX_TIMESTAMP) is None

    def test_a_first_record_at_time_0(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.append_as_leader(batch(timestamp=0), 0)
        assert log.fetch_offset_by_timestamp(0) == (0, 0, 0)
        assert log.fetch_offset_by_timestamp(MAX_TIMESTAMP) == (0, 0, 0)

    def test_special_values_that_nobody_knows(self, tmp_path: Path) -> None:
        with pytest.raises(UnsupportedVersionError):
            open_log(tmp_path).fetch_offset_by_timestamp(-6)

    def test_format_v0_is_refused(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, message_format_version="0.9.0")
        log.append_as_leader(messages(magic=0), 0)
        for target in (0, NOW_MS, MAX_TIMESTAMP):
            with pytest.raises(UnsupportedForMessageFormatError):
                log.fetch_offset_by_timestamp(target)
        assert log.fetch_offset_by_timestamp(LATEST) == (-1, 1, -1)
        assert log.fetch_offset_by_timestamp(EARLIEST) == (-1, 0, -1)

    def test_a_segment_of_v0_in_front_hides_nothing(self, tmp_path: Path) -> None:
        """Kafka picks it by its file's time and says "none" (spec §13.3, corner case a)."""
        log = open_log(tmp_path, message_format_version="0.9.0")
        log.append_as_leader(messages(magic=0), 0)
        log.update_config(config())
        log.roll()
        log.append_as_leader(batch(timestamp=NOW_MS), 0)
        assert log.fetch_offset_by_timestamp(NOW_MS - 5) == (NOW_MS, 1, 0)

    def test_the_log_start_behind_the_match_hides_nothing(self, tmp_path: Path) -> None:
        """Spec §13.3, corner case b."""
        log = open_log(tmp_path)
        log.append_as_leader(timed([NOW_MS + 10, NOW_MS]), 0)
        log.roll()
        log.append_as_leader(batch(timestamp=NOW_MS + 5), 0)
        log.update_high_watermark(3)
        log.maybe_increment_log_start_offset(1)
        assert log.fetch_offset_by_timestamp(NOW_MS + 2) == (NOW_MS + 5, 2, 0)
        assert log.fetch_offset_by_timestamp(MAX_TIMESTAMP) == (NOW_MS + 5, 2, 0)
        log.maybe_increment_log_start_offset(3)
        assert log.fetch_offset_by_timestamp(NOW_MS) is None
        assert log.fetch_offset_by_timestamp(MAX_TIMESTAMP) is None

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])
    @pytest.mark.parametrize(("timestamp_type", "largest"), [("CreateTime", (999, 1)), ("LogAppendTime", (NOW_MS, 0))])
    def test_three_records_in_one_batch(
        self, codec: Codec, timestamp_type: str, largest: tuple[int, int], tmp_path: Path
    ) -> None:
        """ListOffsetsIntegrationTest.testThree{Compressed,NonCompressed}RecordsInOneBatch, …HavingDifferentCompressionType….

        Asked again after a restart for which the indexes were deleted.
        """
        options = {"message_timestamp_type": timestamp_type, "compression_type": "lz4" if codec is Codec.LZ4 else "producer"}
        log = open_log(tmp_path, **options)
        data = timed([100, 999, 200]) if codec is not Codec.GZIP else gzip([100, 999, 200])
        log.append_as_leader(data, 0)
        for _ in range(2):
            assert log.fetch_offset_by_timestamp(EARLIEST) == (-1, 0, 0)
            assert log.fetch_offset_by_timestamp(LATEST) == (-1, 3, 0)
            assert log.fetch_offset_by_timestamp(MAX_TIMESTAMP) == (*largest, 0)
            log.flush(force_active=True)
            log.close()
            for path in log.directory.glob("*.index"):
                path.unlink()
            log = open_log(tmp_path, **options)

    def test_three_records_in_separate_batches(self, tmp_path: Path) -> None:
        """ListOffsetsIntegrationTest.testThreeNonCompressedRecordsInSeparateBatch: with LogAppendTime the last."""
        for timestamp_type, expected in (("CreateTime", (999, 1, 0)), ("LogAppendTime", (NOW_MS + 2, 2, 0))):
            (tmp_path / timestamp_type).mkdir()
            log = open_log(tmp_path / timestamp_type, message_timestamp_type=timestamp_type)
            for timestamp in (100, 999, 200):
                log.append_as_leader(batch(timestamp=timestamp), 0)
                log.clock.advance(1)  # type: ignore[attr-defined]
            assert log.fetch_offset_by_timestamp(MAX_TIMESTAMP) == expected

    def test_get_first_batch_timestamp_for_segments(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testGetFirstBatchTimestampForSegments."""
        log = open_log(tmp_path)
        log.append_as_leader(batch(timestamp=1000), 0)
        log.roll()
        assert [segment.first_batch_timestamp for segment in log.segments] == [1000, 2**63 - 1]
        log.append_as_leader(batch(timestamp=2000), 0)
        assert [segment.first_batch_timestamp for segment in log.segments] == [1000, 2000]


class TestAsAConsumerSeesIt:
    def test_up_to_the_high_watermark(self, tmp_path: Path) -> None:
        """More checks, 5: the latest record at or above the high watermark is not found, and no lower one in its place."""
        log = open_log(tmp_path)
        for later_ms in range(4):
            log.append_as_leader(batch(timestamp=NOW_MS + later_ms), 0)
        log.update_high_watermark(3)
        ask = log.fetch_offset_for_timestamp
        assert ask(NOW_MS + 2, HIGH_WATERMARK) == (NOW_MS + 2, 2, 0)
        assert ask(NOW_MS + 3, HIGH_WATERMARK) is None
        assert ask(MAX_TIMESTAMP, HIGH_WATERMARK) is None
        assert ask(MAX_TIMESTAMP, FetchIsolation.LOG_END) == (NOW_MS + 3, 3, 0)
        assert ask(LATEST, HIGH_WATERMARK) == (-1, 3, 0)
        assert ask(LATEST_TIERED, HIGH_WATERMARK) == (-1, -1, -1)
        assert ask(EARLIEST, HIGH_WATERMARK) == (-1, 0, 0)

    def test_read_committed_consumer_should_not_see_undecided_data(self, tmp_path: Path) -> None:
        """TransactionsTest.testReadCommittedConsumerShouldNotSeeUndecidedData, the log's part of it."""
        log = open_log(tmp_path)
        log.append_as_leader(batch(timestamp=NOW_MS - 10), 0)
        log.append_as_leader(batch(timestamp=NOW_MS, producer=Producer(1, 0, 0), transactional=True), 0)
        log.append_as_leader(batch(timestamp=NOW_MS + 10), 0)
        log.update_high_watermark(3)
        ask = log.fetch_offset_for_timestamp
        for timestamp, offset in ((NOW_MS, 1), (NOW_MS + 1, 2)):
            assert ask(timestamp, TXN_COMMITTED) is None
            assert (ask(timestamp, HIGH_WATERMARK) or ())[1] == offset
        assert (ask(LATEST, TXN_COMMITTED), ask(LATEST, HIGH_WATERMARK)) == ((-1, 1, 0), (-1, 3, 0))
        end_txn(log, ControlType.COMMIT, 1)
        log.update_high_watermark(4)
        assert ask(NOW_MS + 1, TXN_COMMITTED) == (NOW_MS + 10, 2, 0)


class TestLegacy:
    """ListOffsets v0: by the files' times."""

    def filled(self, directory: Path) -> PartitionLog:
        log = open_log(directory, segment_bytes=140)
        for _ in range(20):
            log.append_as_leader(batch(key=None, value=b"42"), 0)
        for segment in log.segments:
            os.utime(segment.log.path, ns=(0, (NOW_MS - 100 + segment.base_offset) * 1_000_000))
        return log

    def test_get_offsets_before_latest_time(self, tmp_path: Path) -> None:
        """LogOffsetTest.testGetOffsetsBeforeLatestTime."""
        log = self.filled(tmp_path)
        expected = [20, *range(18, -1, -2)]
        assert log.legacy_fetch_offsets_before(LATEST, 15) == expected
        assert log.legacy_fetch_offsets_before(LATEST, 3) == [20, 18, 16]

    def test_get_offsets_before_now(self, tmp_path: Path) -> None:
        """LogOffsetTest.testGetOffsetsBeforeNow."""
        log = self.filled(tmp_path)
        assert log.legacy_fetch_offsets_before(NOW_MS, 15) == [20, *range(18, -1, -2)]
        assert log.legacy_fetch_offsets_before(NOW_MS - 90, 2) == [10, 8]
        assert log.legacy_fetch_offsets_before(NOW_MS - 101, 15) == []

    def test_get_offsets_before_earliest_time(self, tmp_path: Path) -> None:
        """LogOffsetTest.testGetOffsetsBeforeEarliestTime."""
        assert self.filled(tmp_path).legacy_fetch_offsets_before(EARLIEST, 10) == [0]

    def test_get_offsets_after_delete_records(self, tmp_path: Path) -> None:
        """LogOffsetTest.testGetOffsetsAfterDeleteRecords."""
        log = self.filled(tmp_path)
        log.update_high_watermark(20)
        log.maybe_increment_log_start_offset(3)
        log.delete_old_segments()
        assert log.legacy_fetch_offsets_before(LATEST, 15) == [20, 18, 16, 14, 12, 10, 8, 6, 4, 3]

    def test_empty_logs_get_offsets(self, tmp_path: Path) -> None:
        """LogOffsetTest.testEmptyLogsGetOffsets."""
        assert open_log(tmp_path).legacy_fetch_offsets_before(LATEST, 5) == [0]


def gzip(timestamps: list[int]) -> bytearray:
    return build_batch_v2([Record(i, t, CREATE_TIME, b"k", b"v") for i, t in enumerate(timestamps)], codec=Codec.GZIP)


TIMES = st.integers(-1, 30)
BATCHES = st.lists(st.lists(TIMES, min_size=1, max_size=4), min_size=1, max_size=15)


@given(BATCHES, st.integers(0, 40), st.booleans())
@examples(80)
def test_the_answers_are_those_of_a_plain_scan(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], start: int, reopen: bool
) -> None:
    """Rolls, a log start anywhere, restarts: the first record that is late enough, and the first of the latest."""
    directory = tmp_path_factory.mktemp("times")
    properties = {"segment_bytes": 400, "index_interval_bytes": 100, "segment_ms": 10}
    log = open_log(directory, **properties)
    for timestamps in batches:
        log.append_as_leader(timed(timestamps), 0)
    log.update_high_watermark(log.log_end_offset)
    start = min(start, log.log_end_offset)
    log.maybe_increment_log_start_offset(start)
    if reopen:
        log.close()
        log = open_log(directory, log_start_offset=start, **properties)
    found = records(log)
    for timestamp in range(32):
        late = next(((record.timestamp, record.offset) for record in found if record.timestamp >= timestamp), None)
        answer = log.fetch_offset_by_timestamp(timestamp)
        assert (None if answer is None else answer[:2]) == late
    largest = max((record.timestamp for record in found), default=NO_TIMESTAMP)
    first = next(((record.timestamp, record.offset) for record in found if record.timestamp == largest >= 0), None)
    answer = log.fetch_offset_by_timestamp(MAX_TIMESTAMP)
    assert (None if answer is None else answer[:2]) == first
    log.close_handlers()
