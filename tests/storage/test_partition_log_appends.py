"""Appends, as leader and as follower: what is refused, what is written, what comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.partition_logs import (
    NOW_MS,
    TOPIC_ID,
    batch,
    config,
    fetch,
    headers,
    messages,
    offset_entries,
    offsets,
    open_log,
    records,
    time_entries,
)
from tidelog.config import INT32_MAX, INT64_MAX
from tidelog.errors import (
    CorruptBatchError,
    InvalidOffsetError,
    InvalidRecordError,
    InvalidTimestampError,
    OffsetsOutOfOrderError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    RecordValidationError,
    TidelogError,
    UnexpectedAppendOffsetError,
    UnsupportedForMessageFormatError,
    kafka_error_code,
)
from tidelog.formats.partition_metadata import read_topic_id
from tidelog.model import NO_TIMESTAMP
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.records import Record
from tidelog.storage.partition.append.append_info import AppendInfo

CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
FORMATS = [(0, codec) for codec in CODECS] + [(1, codec) for codec in CODECS] + [(2, codec) for codec in (*CODECS, Codec.ZSTD)]


def some(magic: int, offset: int, count: int, codec: Codec = Codec.NONE) -> bytearray:
    if magic == 2:
        return batch(offset, count=count, codec=codec)
    return messages(offset, count=count, magic=magic, codec=codec)


class TestAsLeader:
    def test_append_info_first_offset(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testAppendInfoFirstOffset: 0, 3, 6 for sets of three, over a roll as well."""
        log = open_log(tmp_path)
        first, second = log.append_as_leader(batch(count=3), 0), log.append_as_leader(batch(count=3), 0)
        log.roll()
        third = log.append_as_leader(batch(count=3), 0)
        assert [info.first_offset for info in (first, second, third)] == [0, 3, 6]
        size = len(batch(count=3))
        expected = AppendInfo(
            first_offset=6, last_offset=8, max_timestamp=NOW_MS, log_append_time=-1, log_start_offset=0, size_bytes=size
        )
        assert third == expected

    def test_append_and_read_with_sequential_offsets(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testAppendAndReadWithSequentialOffsets."""
        log = open_log(tmp_path, segment_bytes=200)
        for i in range(50):
            log.append_as_leader(batch(value=b"%d" % i), 0)
        assert [(record.offset, record.value) for record in records(log)] == [(i, b"%d" % i) for i in range(50)]
        for i in range(50):
            assert fetch(log, i)[0] == i
        assert fetch(log, 50) == []

    @pytest.mark.parametrize(("magic", "codec"), FORMATS)
    def test_every_format_gets_the_offsets_of_the_log(self, magic: int, codec: Codec, tmp_path: Path) -> None:
        version = {0: "0.9.0", 1: "0.10.2", 2: "3.0-IV1"}[magic]
        log = open_log(tmp_path, message_format_version=version)
        log.append_as_leader(some(magic, 0, 5, codec), 0)
        info = log.append_as_leader(some(magic, 0, 5, codec), 0)
        assert (info.first_offset, info.last_offset, log.log_end_offset) == (5, 9, 10)
        assert info.max_timestamp == (NO_TIMESTAMP if magic == 0 else NOW_MS)
        assert offsets(log) == list(range(10))
        assert {header.magic for header in headers(log)} == {magic}
        assert {header.codec for header in headers(log)} == {codec}

    @pytest.mark.parametrize("magic", [0, 1])
    def test_what_is_sent_is_converted_to_the_topics_format(self, magic: int, tmp_path: Path) -> None:
        """message.format.version is honoured, whatever the producer's format."""
        log = open_log(tmp_path, message_format_version={0: "0.9.0", 1: "0.10.2"}[magic])
        log.append_as_leader(batch(count=3), 0)
        assert {header.magic for header in headers(log)} == {magic}
        assert offsets(log) == [0, 1, 2]
        assert log.leader_epochs.is_empty  # those formats know no epochs
        log.update_config(config())
        log.append_as_leader(messages(count=3), 3)
        assert [header.magic for header in headers(log)][3:] == [2]
        assert log.leader_epochs.latest_epoch == 3

    def test_a_topics_codec(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, compression_type="lz4")
        log.append_as_leader(batch(count=100, value=b"v" * 100), 0)
        log.append_as_leader(batch(count=100, value=b"v" * 100, codec=Codec.GZIP), 0)
        assert [header.codec for header in headers(log)] == [Codec.LZ4, Codec.LZ4]
        assert offsets(log) == list(range(200))

    def test_the_buffer_is_changed_in_place_where_that_will_do(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.append_as_leader(batch(count=3), 7)
        data = batch(count=3)
        log.append_as_leader(data, 7)
        assert bytes(data) == log.segments.active.log.read(len(data), len(data))
        assert int.from_bytes(data[:8]) == 3
        constant = bytes(batch())
        log.append_as_leader(constant, 7)
        assert constant == batch()

    def test_a_partial_batch_at_the_end_is_left_out(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, message_format_version="0.10.2")
        whole = messages(count=2)
        info = log.append_as_leader(whole + messages()[:-1], 0)
        assert (info.last_offset, info.size_bytes) == (1, len(whole))
        assert log.append_as_leader(whole[:20], 0) == AppendInfo.nothing(log_start_offset=0)
        assert offsets(log) == [0, 1]

    def test_message_set_size_check(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testMessageSetSizeCheck: a set larger than a segment is refused, one of exactly its size is not."""
        log = open_log(tmp_path, segment_bytes=len(batch(count=4)))
        log.append_as_leader(batch(count=4), 0)
        with pytest.raises(RecordBatchTooLargeError):
            log.append_as_leader(batch(count=5), 0)
        assert log.log_end_offset == 4

    def test_message_size_check(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testMessageSizeCheck."""
        log = open_log(tmp_path, max_message_bytes=len(batch(count=2)) - 1)
        log.append_as_leader(batch(), 0)
        with pytest.raises(RecordTooLargeError):
            log.append_as_leader(batch(count=2), 0)

    def test_message_size_check_in_append_as_follower(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testMessageSizeCheckInAppendAsFollower: what a leader took, a follower takes."""
        log = open_log(tmp_path, max_message_bytes=len(batch(count=2)) - 1)
        log.append_as_follower(batch(0))
        log.append_as_follower(batch(1, count=2))
        assert offsets(log) == [0, 1, 2]

    def test_a_batch_that_only_grows_too_large_is_refused(self, tmp_path: Path) -> None:
        """Sizes are looked at again where records were rebuilt (spec §5.1, step 4)."""
        data = batch(count=50, codec=Codec.GZIP)
        log = open_log(tmp_path, compression_type="uncompressed", max_message_bytes=len(data))
        with pytest.raises(RecordTooLargeError):
            log.append_as_leader(data, 0)
        assert log.size_bytes == 0

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
    def test_compacted_topic_constraints(self, codec: Codec, tmp_path: Path) -> None:
        """UnifiedLogTest.testCompactedTopicConstraints: a record without a key is named by its place."""
        log = open_log(tmp_path, cleanup_policy="compact")
        keyed, unkeyed = (Record(0, 1, CREATE_TIME, key, b"v") for key in (b"k", None))
        for sent, bad in (([unkeyed], 0), ([unkeyed, keyed], 0), ([keyed, unkeyed], 1)):
            data = build_batch_v2([record._replace(offset=i) for i, record in enumerate(sent)], codec=codec)
            with pytest.raises(RecordValidationError) as caught:
                log.append_as_leader(data, 0)
            assert [error.batch_index for error in caught.value.record_errors] == [bad]
            assert kafka_error_code(type(caught.value)) == (87, "INVALID_RECORD")
        assert log.append_as_leader(build_batch_v2([keyed], codec=codec), 0).first_offset == 0
        assert offsets(log) == [0]

    def test_append_message_with_null_payload(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testAppendMessageWithNullPayload."""
        log = open_log(tmp_path)
        log.append_as_leader(batch(value=None), 0)
        assert [(record.offset, record.value) for record in records(log)] == [(0, None)]

    def test_append_with_no_timestamp(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testAppendWithNoTimestamp."""
        log = open_log(tmp_path)
        info = log.append_as_leader(batch(timestamp=NO_TIMESTAMP), 0)
        assert info.max_timestamp == NO_TIMESTAMP
        assert records(log)[0].timestamp == NO_TIMESTAMP

    def test_timestamps_out_of_bounds(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=10)
        for timestamp in (NOW_MS - 1001, NOW_MS + 11):
            with pytest.raises(InvalidTimestampError):
                log.append_as_leader(batch(timestamp=timestamp), 0)
        log.append_as_leader(batch(timestamp=NOW_MS - 1000), 0)
        log.append_as_leader(batch(timestamp=NOW_MS + 10), 0)

    def test_a_clients_batch_begins_at_offset_0(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        with pytest.raises(InvalidRecordError, match="offset 0"):
            log.append_as_leader(batch(3), 0)

    @pytest.mark.parametrize("magic", [0, 1, 2])
    def test_damaged_batches_are_refused(self, magic: int, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        data = some(magic, 0, 1)
        data[-1] ^= 1
        for refused in (lambda: log.append_as_leader(data, 0), lambda: log.append_as_follower(data)):
            with pytest.raises(CorruptBatchError, match="checksum"):
                refused()
        assert log.size_bytes == 0
        assert not log.is_offline

    def test_transactions_need_format_v2(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, message_format_version="0.10.2")
        with pytest.raises(UnsupportedForMessageFormatError):
            log.append_as_leader(batch(producer=Producer(1, 0, 0)), 0)

    def test_nothing_is_left_of_what_was_refused(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, max_message_bytes=200, cleanup_policy="compact")
        for data in (batch(5), batch(count=100), batch(key=None), batch()[:-3] + b"abc"):
            with pytest.raises(TidelogError):
                log.append_as_leader(data, 0)
        assert (log.log_end_offset, log.size_bytes) == (0, 0)
        assert not (log.directory / "partition.metadata").exists()
        assert log.append_as_leader(batch(), 0).first_offset == 0

    def test_apply_epoch_to_message_on_append_if_leader(self, tmp_path: Path) -> None:
        """UnifiedLogTest.shouldApplyEpochToMessageOnAppendIfLeader."""
        log = open_log(tmp_path)
        for _ in range(3):
            log.append_as_leader(batch(leader_epoch=-1), 72)
        assert {header.leader_epoch for header in headers(log)} == {72}
        assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n1\n72 0\n"


class TestAsFollower:
    def test_append_and_read_with_non_sequential_offsets(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testAppendAndReadWithNonSequentialOffsets: a read gives the next offset that is there."""
        ids = [*range(50), *range(50, 200, 7)]
        log = open_log(tmp_path, segment_bytes=200)
        for offset in ids:
            log.append_as_follower(batch(offset))
        for i in range(50, max(ids)):
            assert fetch(log, i)[0] == next(one for one in ids if one >= i)

    def test_append_with_out_of_order_offsets_throws_exception(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testAppendWithOutOfOrderOffsetsThrowsException."""
        for magic, codec in FORMATS:
            folder = tmp_path / f"{magic}-{codec.name}"
            folder.mkdir()
            log = open_log(folder)
            with pytest.raises(OffsetsOutOfOrderError):
                log.append_as_follower(b"".join(some(magic, offset, 1, codec) for offset in (0, 1, 3, 2, 4)))
            assert log.size_bytes == 0

    def test_batches_that_overlap_are_out_of_order(self, tmp_path: Path) -> None:
        # Kafka looks at last offsets only; a log of such batches could not be walked.
        log = open_log(tmp_path)
        overlapping = bytearray(batch(0, count=3))
        with pytest.raises(OffsetsOutOfOrderError):
            log.append_as_follower(overlapping + batch(2, count=3))

    @pytest.mark.parametrize("offset", [INT32_MAX + 2, INT64_MAX])
    def test_offsets_that_no_segment_can_hold(self, tmp_path: Path, offset: int) -> None:
        """They are refused before anything is noted: a leader's word takes no log offline."""
        log = open_log(tmp_path)
        log.append_as_follower(batch(0, count=1))
        with pytest.raises(InvalidOffsetError, match="too far apart for one segment"):
            log.append_as_follower(batch(1, count=1, leader_epoch=3) + batch(offset, count=1, leader_epoch=4), 5)
        latest = log.leader_epochs.latest
        assert not log.is_offline and latest is not None and latest.epoch == 0
        log.append_as_follower(batch(1, count=1))
        log.append_as_follower(batch(INT32_MAX + 7, count=1))
        assert offsets(log) == [0, 1, INT32_MAX + 7], "a gap between two appends is no matter"

    def test_append_below_expected_offset_throws_exception(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testAppendBelowExpectedOffsetThrowsException."""
        for magic, codec in FORMATS:
            folder = tmp_path / f"{magic}-{codec.name}"
            folder.mkdir()
            log = open_log(folder)
            for offset in range(2):
                log.append_as_follower(some(magic, offset, 1, codec))
            for offset in range(2):
                with pytest.raises(UnexpectedAppendOffsetError):
                    log.append_as_follower(some(magic, offset, 1, codec))
            assert log.log_end_offset == 2

    def test_append_empty_log_below_log_start_offset_throws_exception(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testAppendEmptyLogBelowLogStartOffsetThrowsException: log end 7, a batch 4 to 6."""
        for magic, codec in FORMATS:
            folder = tmp_path / f"{magic}-{codec.name}"
            folder.mkdir()
            log = open_log(folder, log_start_offset=7)
            assert (log.log_start_offset, log.log_end_offset) == (7, 7)
            with pytest.raises(UnexpectedAppendOffsetError) as caught:
                log.append_as_follower(some(magic, 4, 3, codec))
            # v0 and v1 batches do not tell their first offset: one message is its own, a wrapper has its last.
            first = 4 if magic == 2 or codec is Codec.NONE else 6
            assert (caught.value.first_offset, caught.value.last_offset) == (first, 6)

    def test_batches_of_a_newer_epoch_are_left_out(self, tmp_path: Path) -> None:
        """KAFKA-18723: the leader may be about to lose them."""
        log = open_log(tmp_path)
        sets = [batch(offset, leader_epoch=epoch) for offset, epoch in enumerate((3, 3, 4, 3))]
        info = log.append_as_follower(b"".join(sets), 3)
        assert (info.first_offset, info.last_offset, info.size_bytes) == (0, 1, 2 * len(batch()))
        assert log.append_as_follower(sets[2], 3).last_offset == -1
        assert offsets(log) == [0, 1]
        assert log.append_as_follower(sets[2]).last_offset == 2
        assert log.leader_epochs.entries == ((3, 0), (4, 2))

    def test_bytes_stay_as_they_came(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, compression_type="gzip", message_timestamp_type="LogAppendTime", cleanup_policy="compact")
        sent = batch(0, 5, 2, leader_epoch=9) + batch(2, 7, key=None, leader_epoch=9) + messages(3, 1)
        log.append_as_follower(sent + batch(4)[:-1])
        assert log.segments.active.log.read(0, 10_000) == sent

    def test_build_time_index_when_not_assigning_offsets(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testBuildTimeIndexWhenNotAssigningOffsets: every batch but the first has a time entry."""
        log = open_log(tmp_path, index_interval_bytes=1)
        for i in range(100):
            log.append_as_follower(batch(100 + i, NOW_MS + i))
        assert log.segments.active.time_index.entries == 99
        assert log.segments.active.time_index.last_entry == (NOW_MS + 99, 199)

    def test_one_append_of_many_batches_is_as_many_appends(self, tmp_path: Path) -> None:
        """KAFKA-806: the indexes do not depend on how batches come together."""
        sets = [batch(3 * i, NOW_MS + 1000 * (i % 5), 3) for i in range(40)]
        files = []
        for name, appends in (("one", [b"".join(sets)]), ("many", sets)):
            (tmp_path / name).mkdir()
            log = open_log(tmp_path / name, index_interval_bytes=200)
            for data in appends:
                log.append_as_follower(data)
            log.close()
            files.append({path.name: path.read_bytes() for path in log.directory.iterdir()})
        assert files[0] == files[1]

    def test_index_interval_is_checked_before_the_batch_counts(self, tmp_path: Path) -> None:
        """KAFKA-806: the interval must be exceeded by the bytes before the batch; the batch that gets the entry counts again."""
        size = len(batch())
        log = open_log(tmp_path, index_interval_bytes=2 * size)
        for _ in range(8):
            log.append_as_leader(batch(), 0)
        log.close()
        assert [entry.offset for entry in offset_entries(log.directory, 0)] == [3, 6]
        assert time_entries(log.directory, 0) == [(NOW_MS, 0)]

    def test_follower_should_save_epoch_information(self, tmp_path: Path) -> None:
        """UnifiedLogTest.followerShouldSaveEpochInformationFromReplicatedMessagesToTheEpochCache."""
        log = open_log(tmp_path)
        for offset, epoch in enumerate((42, 42, 43)):
            log.append_as_follower(batch(offset, leader_epoch=epoch))
        assert log.leader_epochs.entries == ((42, 0), (43, 2))
        assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n2\n42 0\n43 2\n"


class TestTopicId:
    def test_log_flushes_partition_metadata_on_append(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testLogFlushesPartitionMetadataOnAppend: before the first record, and not before."""
        log = open_log(tmp_path)
        path = log.directory / "partition.metadata"
        assert not path.exists()
        log.append_as_leader(batch(), 0)
        assert read_topic_id(path) == TOPIC_ID

    def test_log_flushes_partition_metadata_on_close(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testLogFlushesPartitionMetadataOnClose, PartitionMetadataFileTest.testMaybeFlushWithTopicIdPresent."""
        log = open_log(tmp_path)
        log.close()
        text = (log.directory / "partition.metadata").read_text()
        assert text.splitlines()[0] == "version: 0"
        assert len(text.splitlines()) == 2

    def test_log_recovers_topic_id(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testLogRecoversTopicId."""
        open_log(tmp_path).close()
        assert open_log(tmp_path, topic_id=None).topic_id == TOPIC_ID
        assert open_log(tmp_path).topic_id == TOPIC_ID
