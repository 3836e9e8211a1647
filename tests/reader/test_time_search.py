"""The search by time over a whole log: UnifiedLogTest's time look-ups, LogOffsetTest, ListOffsetsIntegrationTest,
ListOffsetsRequestTest and the consumer's offsetsForTimes, as far as they are about a log; and the one deliberate difference."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reader import build
from tests.reader.build import LogBuilder
from tidelog.errors import InvalidArgumentError, UnsupportedForMessageFormatError, UnsupportedVersionError
from tidelog.formats.leader_epochs import EpochEntry, LeaderEpochs
from tidelog.model import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from tidelog.reader import proven_head
from tidelog.reader.log import Log
from tidelog.reader.time_search import FoundOffset, find_offset
from tidelog.reader.trace import BatchesStep, KafkaStep, OffsetIndexStep, RecordStep, SegmentStep, TimeIndexStep, Trace
from tidelog.records.batch import HEADER_BYTES
from tidelog.records.builder import Producer
from tidelog.records.compression import Codec


def make(tmp_path: Path, *batches: bytes, name: str = "t-0", **options: int) -> Log:
    return LogBuilder(tmp_path / name, **options).append(*batches).close().open()


def answer(log: Log, timestamp: int) -> tuple[int, int] | None:
    found = find_offset(log, timestamp)
    return None if found is None else found[:2]


class TestKafkasLines:
    def test_fetch_offset_by_timestamp_includes_leader_epoch(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testFetchOffsetByTimestampIncludesLeaderEpoch, ListOffsetsRequestTest.testResponseIncludesLeaderEpoch"""
        assert find_offset(make(tmp_path, name="empty-0"), 0) is None
        builder = LogBuilder(tmp_path / "t-0")
        builder.append(build.batch(0, [1000], epoch=0), build.batch(1, [1001], epoch=1)).close()
        path = builder.directory / "leader-epoch-checkpoint"
        LeaderEpochs([EpochEntry(0, 0), EpochEntry(1, 1)]).write(path)
        log = builder.open()
        assert find_offset(log, 1000) == (0, 1000, 0, False)
        assert find_offset(log, 1001) == (1, 1001, 1, False)
        assert find_offset(log, EARLIEST) == find_offset(log, EARLIEST_LOCAL) == (0, -1, 0, False)
        assert find_offset(log, LATEST) == (2, -1, 1, False)
        LeaderEpochs([EpochEntry(0, 0), EpochEntry(1, 1), EpochEntry(2, 2)]).write(path)
        log = builder.open()
        assert find_offset(log, LATEST) == (2, -1, 2, False)
        assert find_offset(log, 1000) == (0, 1000, 0, False)

    def test_fetch_offset_by_timestamp_with_max_timestamp_includes_timestamp(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testFetchOffsetByTimestampWithMaxTimestampIncludesTimestamp"""
        log = make(tmp_path, *(build.batch(i, [time], epoch=0) for i, time in enumerate((1000, 1001, 1000))))
        assert find_offset(log, MAX_TIMESTAMP) == (1, 1001, 0, False)

    def test_fetch_latest_tiered_timestamp_no_remote_storage(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testFetchLatestTieredTimestampNoRemoteStorage"""
        for log in (make(tmp_path, name="empty-0"), make(tmp_path, build.batch(0, [1], epoch=0))):
            assert find_offset(log, LATEST_TIERED) == (-1, -1, -1, False)

    def test_fetch_offset_by_timestamp_for_max_timestamp_after_truncate(self, tmp_path: Path) -> None:
        """LogOffsetTest.testFetchOffsetByTimestampForMaxTimestampAfterTruncate, its reading half: 20 records in 10 segments"""
        batches = [build.batch(i, [i], value=b"hello") for i in range(20)]
        log = make(tmp_path, *batches, segment_bytes=2 * len(batches[0]))
        assert len(log.segments) == 10
        assert answer(log, MAX_TIMESTAMP) == (19, 19)

    def test_fetch_offset_by_timestamp_for_max_timestamp_with_unordered_timestamps(self, tmp_path: Path) -> None:
        """LogOffsetTest.testFetchOffsetByTimestampForMaxTimestampWithUnorderedTimestamps"""
        batches = [build.batch(i, [time]) for i, time in enumerate((0, 1, 2, 3, 4, 6, 5))]
        assert answer(make(tmp_path, *batches, segment_bytes=2 * len(batches[0])), MAX_TIMESTAMP) == (5, 6)

    def test_fetch_offset_by_timestamp_for_max_timestamp_with_empty_log(self, tmp_path: Path) -> None:
        """LogOffsetTest.testFetchOffsetByTimestampForMaxTimestampWithEmptyLog,
        ListOffsetsIntegrationTest.testListMaxTimestampWithEmptyLog"""
        assert find_offset(make(tmp_path), MAX_TIMESTAMP) is None

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
    @pytest.mark.parametrize("magic", [1, 2])
    def test_three_records_in_one_batch(self, tmp_path: Path, codec: Codec, magic: int) -> None:
        """ListOffsetsIntegrationTest.testThreeCompressedRecordsInOneBatch, testThreeNonCompressedRecordsInOneBatch"""
        log = make(tmp_path, build.batch(0, [100, 999, 200], codec=codec, magic=magic))
        assert [answer(log, target) for target in (EARLIEST, LATEST, MAX_TIMESTAMP)] == [(0, -1), (3, -1), (1, 999)]
        appended = make(tmp_path, build.batch(0, [100, 999, 200], codec=codec, magic=magic, append_time=5000), name="lat-0")
        assert answer(appended, MAX_TIMESTAMP) == (0, 5000)

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
    def test_three_records_in_separate_batch(self, tmp_path: Path, codec: Codec) -> None:
        """ListOffsetsIntegrationTest.testThreeNonCompressedRecordsInSeparateBatch, testThreeCompressedRecordsInSeparateBatch;
        .index files deleted make no difference"""
        log = make(tmp_path, *(build.batch(i, [time], codec=codec) for i, time in enumerate((100, 999, 200))))
        assert answer(log, MAX_TIMESTAMP) == (1, 999)
        appended = [build.batch(i, [100 - i], codec=codec, append_time=5000 + i) for i in range(3)]
        builder = LogBuilder(tmp_path / "lat-0").append(*appended).close()
        assert answer(builder.open(), MAX_TIMESTAMP) == (2, 5002)
        builder.file(0, ".index").unlink()
        assert answer(builder.open(), MAX_TIMESTAMP) == (2, 5002)

    def test_fetch_offsets_for_time(self, tmp_path: Path) -> None:
        """PlaintextConsumerTest.testFetchOffsetsForTime: record i has timestamp i"""
        log = make(tmp_path, *(build.batch(i, [i], epoch=0) for i in range(100)))
        assert find_offset(log, 0) == (0, 0, 0, False)
        assert find_offset(log, 20) == (20, 20, 0, False)

    def test_offsets_for_times_with_legacy_formats(self, tmp_path: Path) -> None:
        """ConsumerWithLegacyMessageFormatIntegrationTest.testOffsetsForTimes, testEarliestOrLatestOffsets"""
        v1 = make(tmp_path, *(build.batch(i, [i], magic=1) for i in range(100)), name="v1-0")
        assert [answer(v1, target) for target in (0, 20, 40, 60, 80, 100)] == [
            (0, 0),
            (20, 20),
            (40, 40),
            (60, 60),
            (80, 80),
            None,
        ]
        v0 = make(tmp_path, *(build.batch(i, [i], magic=0) for i in range(100)), name="v0-0")
        for target in (0, 20, MAX_TIMESTAMP, EARLIEST_LOCAL):
            with pytest.raises(UnsupportedForMessageFormatError):
                find_offset(v0, target)
        for log in (v0, v1):
            assert (answer(log, EARLIEST), answer(log, LATEST)) == ((0, -1), (100, -1))

    def test_no_offset_if_timestamp_greater_than_latest_record(self, tmp_path: Path) -> None:
        """GetOffsetShellTest.testNoOffsetIfTimestampGreaterThanLatestRecord"""
        assert find_offset(make(tmp_path, build.batch(0, [1, 2, 3])), 4) is None

    def test_read_committed_consumer_should_not_see_undecided_data(self, tmp_path: Path) -> None:
        """TransactionsTest.testReadCommittedConsumerShouldNotSeeUndecidedData"""
        log = make(
            tmp_path,
            build.batch(0, [10, 20]),
            build.batch(2, [30], producer=Producer(7, 0, 0), transactional=True),
            build.batch(3, [40]),
        )
        assert find_offset(log, 15, "read_committed") == (1, 20, -1, False)
        for target in (30, 31, MAX_TIMESTAMP):
            assert find_offset(log, target, "read_committed") is None
        assert answer(log, 30) == (2, 30) and answer(log, 31) == (3, 40) and answer(log, MAX_TIMESTAMP) == (3, 40)
        latest = find_offset(log, LATEST, "read_committed")
        assert latest is not None and latest.offset == 2

    @pytest.mark.parametrize("target", [-6, -7, -(2**40)])
    def test_unknown_special_timestamps(self, tmp_path: Path, target: int) -> None:
        """Negative timestamps that mean nothing: UNSUPPORTED_VERSION (spec §13.1)"""
        with pytest.raises(UnsupportedVersionError):
            find_offset(make(tmp_path, build.batch(0, [1])), target)

    def test_unknown_isolation(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidArgumentError):
            find_offset(make(tmp_path), 0, "read_comitted")  # type: ignore[arg-type]


class TestTheDifference:
    """Kafka answers "none" in each of these; here it is said only when it is true."""

    def kafka(self, log: Log, target: int) -> KafkaStep:
        trace = Trace()
        find_offset(log, target, trace=trace)
        (step,) = [step for step in trace.steps if isinstance(step, KafkaStep)]
        return step

    def test_a_segment_without_timestamps_comes_first(self, tmp_path: Path) -> None:
        builder = LogBuilder(tmp_path / "t-0").append(build.batch(0, [-1, -1], magic=1)).roll()
        builder.append(build.batch(2, [100, 200])).close()
        build.set_modified_ms(builder.file(0, ".log"), 1_000_000)
        log = builder.open()
        assert answer(log, 150) == (3, 200)
        assert self.kafka(log, 150) == KafkaStep(0, "mtime", -1, -1)
        build.set_modified_ms(builder.file(0, ".log"), 149)
        assert self.kafka(builder.open(), 150) == KafkaStep(2, "index", 3, 200)

    def test_an_empty_segment_comes_first(self, tmp_path: Path) -> None:
        """Compaction leaves them."""
        builder = LogBuilder(tmp_path / "t-0").roll(50).append(build.batch(50, [100])).close()
        build.set_modified_ms(builder.file(0, ".log"), 1_000_000)
        log = builder.open()
        assert len(log.segments) == 2
        assert answer(log, 100) == (50, 100)
        assert self.kafka(log, 100) == KafkaStep(0, "mtime", -1, -1)

    def test_the_log_start_lies_behind_the_match(self, tmp_path: Path) -> None:
        """Extra check 4 of the catalogue: the log start passes the record that made its segment the one picked."""
        builder = LogBuilder(tmp_path / "t-0").append(build.batch(0, [900]), build.batch(1, [10]), build.batch(2, [20])).roll()
        builder.append(build.batch(3, [500])).close()
        log = builder.open(log_start_offset=1)
        assert answer(log, 300) == (3, 500)
        assert self.kafka(log, 300) == KafkaStep(0, "index", -1, -1)
        assert answer(log, 501) is None
        assert answer(log, MAX_TIMESTAMP) == (3, 500)

    def test_a_segment_wholly_below_the_log_start(self, tmp_path: Path) -> None:
        builder = LogBuilder(tmp_path / "t-0").append(build.batch(0, [900, 901])).roll().append(build.batch(2, [500])).close()
        for log_start_offset in (2, 3):
            log = builder.open(log_start_offset=log_start_offset)
            expected = (2, 500) if log_start_offset == 2 else None
            assert answer(log, 300) == answer(log, MAX_TIMESTAMP) == expected

    def test_the_last_record_of_a_batch_is_the_log_start(self, tmp_path: Path) -> None:
        log = LogBuilder(tmp_path / "t-0").append(build.batch(0, [900, 901, 30])).close().open(log_start_offset=2)
        assert answer(log, 30) == answer(log, MAX_TIMESTAMP) == (2, 30)
        assert answer(log, 31) is None

    def test_records_past_the_high_watermark(self, tmp_path: Path) -> None:
        """Kafka hides them (extra check 5 of the catalogue); a folder's checkpoint may be older than the records."""
        log = LogBuilder(tmp_path / "t-0").append(build.batch(0, [10]), build.batch(1, [20])).close().open(high_watermark=1)
        assert find_offset(log, 15) == FoundOffset(1, 20, -1, is_past_high_watermark=True)
        assert find_offset(log, 5) == FoundOffset(0, 10, -1, is_past_high_watermark=False)
        assert find_offset(log, 15, "read_committed") is None
        assert find_offset(log, MAX_TIMESTAMP, "read_committed") is None
        assert self.kafka(log, 15).offset == -1

    def test_format_of_a_folder(self, tmp_path: Path) -> None:
        """A folder has no topic configuration: its format is the last batch's, unless it is said."""
        builder = (
            LogBuilder(tmp_path / "t-0").append(build.batch(0, [-1], magic=0)).roll().append(build.batch(1, [7])).roll().close()
        )
        assert builder.open().message_format == 2
        assert answer(builder.open(), 5) == (1, 7)
        with pytest.raises(UnsupportedForMessageFormatError):
            find_offset(builder.open(message_format=0), 5)
        v0 = LogBuilder(tmp_path / "v0-0").append(build.batch(0, [-1], magic=0)).close()
        assert v0.open().message_format == 0
        assert find_offset(v0.open(message_format=1), 5) is None
        assert LogBuilder(tmp_path / "none-0").close().open().message_format == 2
        with pytest.raises(InvalidArgumentError):
            builder.open(message_format=3)


def test_reading_on_from_a_found_offset_brings_earlier_records_and_misses_none(tmp_path: Path) -> None:
    """KIP-33 says both: from the answer on every record that late is there, and some that are earlier."""
    times = [0, 10, 50, 20, 60, 30, 55, 40]
    log = make(tmp_path, *(build.batch(offset, [time]) for offset, time in enumerate(times)), segment_bytes=200)
    found = find_offset(log, 45)
    assert found is not None
    assert (found.offset, found.timestamp) == (2, 50)
    read = [(header.last_offset, header.max_timestamp) for header in log.headers() if header.last_offset >= found.offset]
    assert [time for _, time in read] == [50, 20, 60, 30, 55, 40]
    assert {offset for offset, time in read if time >= 45} == {offset for offset, time in enumerate(times) if time >= 45}


class TestTrace:
    def test_every_step(self, tmp_path: Path) -> None:
        builder = LogBuilder(tmp_path / "t-0").append(*(build.batch(i, [10 * i]) for i in range(20))).roll()
        builder.append(*(build.batch(i, [10 * i, 10 * i + 5]) for i in range(20, 60, 2))).roll()
        builder.append(build.batch(60, [1000])).close()
        log = builder.open()
        trace = Trace()
        assert find_offset(log, 444, trace=trace) == (45, 445, -1, False)
        size = builder.file(20, ".log").stat().st_size // 20
        first, *search, second, kafka = trace.steps
        assert first == SegmentStep(0, builder.file(0, ".log"), 190, "index", "too early")
        assert second == SegmentStep(20, builder.file(20, ".log"), 585, "index", "match")
        assert search == [
            TimeIndexStep(builder.file(20, ".timeindex"), slot=10, entries=19, timestamp=425, offset=43),
            OffsetIndexStep(builder.file(20, ".index"), target_offset=43, slot=10, entries=19, offset=43, position=11 * size),
            BatchesStep(builder.file(20, ".log"), 11 * size, 13 * size, batches=2, opened=1),
            RecordStep(builder.file(20, ".log"), 12 * size, base_offset=44, last_offset=45, offset=45, timestamp=445),
        ]
        assert kafka == KafkaStep(20, "index", 45, 445)
        assert trace.bytes_read > 0

    def test_no_timestamps_and_none(self, tmp_path: Path) -> None:
        builder = LogBuilder(tmp_path / "t-0").append(build.batch(0, [-1], magic=1)).roll().append(build.batch(1, [10])).close()
        trace = Trace()
        assert find_offset(builder.open(), 11, trace=trace) is None
        verdicts = [(step.base_offset, step.verdict) for step in trace.steps if isinstance(step, SegmentStep)]
        assert verdicts == [(0, "no timestamps"), (1, "too early")]

    @pytest.mark.parametrize("damage", [None, ".index", ".timeindex"])
    def test_bytes_read_are_those_of_the_search_alone(self, tmp_path: Path, damage: str | None) -> None:
        """As many as without a trace; to tell Kafka's answer more is read, which does not count."""
        builder = LogBuilder(tmp_path / "t-0", segment_bytes=3000).append(*(build.batch(i, [i]) for i in range(300))).close()
        base = sorted(int(path.stem) for path in builder.directory.glob("*.log"))[2]
        if damage is not None:
            path = builder.file(base, damage)
            path.write_bytes(bytes(range(1, 13)) * (path.stat().st_size // 12))
        for target in (0, base - 1, base, base + 10, base + 20, 298, 299, 300, EARLIEST, LATEST, MAX_TIMESTAMP):
            plain, traced, trace = builder.open(), builder.open(), Trace()
            assert find_offset(plain, target) == find_offset(traced, target, trace=trace)
            assert trace.bytes_read == sum(segment.bytes_read for segment in plain.segments)
            assert trace.bytes_read <= sum(segment.bytes_read for segment in traced.segments)

    def test_only_what_is_needed_is_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of the segments before the answer a look-up reads ends and neighbours, of those after it only the log's last batch.

        So in a log too large to walk its head.
        """
        monkeypatch.setattr(proven_head, "MAX_BYTES", 0)
        builder = LogBuilder(tmp_path / "t-0", interval_bytes=4096, segment_bytes=2_000_000)
        builder.append(*(build.batch(i, [i], value=bytes(1000)) for i in range(8000))).close()
        log = builder.open()
        assert len(log.segments) > 4
        trace = Trace()
        find_offset(log, 3000, trace=trace)
        assert trace.bytes_read < 150_000
        assert [segment.bytes_read for segment in log.segments[2:-1]] == [HEADER_BYTES] * (len(log.segments) - 3)

    def test_descriptors_are_given_back(self, tmp_path: Path) -> None:
        batches = [build.batch(i, [i]) for i in range(50)]
        log = make(tmp_path, *batches, segment_bytes=len(batches[0]))
        assert answer(log, 49) == (49, 49)
        assert len(build.open_descriptors(tmp_path)) <= 3, "those of the last segment at most"
        list(log.headers())
        log.aborted_transactions(0, 50)
        assert len(build.open_descriptors(tmp_path)) <= 3
        log.close()
        assert build.open_descriptors(tmp_path) == []
