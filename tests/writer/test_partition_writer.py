"""Appends and rolls: what Kafka's own tests establish, and what its files then look like."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.writer.helpers import TOPIC_ID, bases, batch, headers, offset_entries, records, time_entries, writer
from tidelog.clock import ManualClock
from tidelog.config import LogConfig
from tidelog.errors import (
    CorruptBatchError,
    InvalidArgumentError,
    InvalidOffsetError,
    OffsetOverflowError,
    RecordTooLargeError,
)
from tidelog.log.log import Log
from tidelog.log.partition_writer import PartitionWriter
from tidelog.log.segment_writer import RollParams, SegmentWriter
from tidelog.records.batch import CREATE_TIME, NO_TIMESTAMP, iter_headers
from tidelog.records.builder import build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.legacy import build_message_set
from tidelog.records.records import Record

INT32_MAX = 2**31 - 1
DAY_MS = 86_400_000


def segment(directory: Path, base_offset: int = 0, **settings: int) -> SegmentWriter:
    return SegmentWriter(directory, base_offset, LogConfig(**settings), created_ms=0)


def put(target: SegmentWriter, data: bytes | bytearray) -> None:
    parsed = list(iter_headers(data))
    target.append(parsed[-1].last_offset, parsed, data)


@pytest.mark.parametrize(
    ("base", "largest"),
    [(0, -(2**31)), (0, 2**31), (1, 0), (100, 10), (2**31, 0), (-(2**31), 0), (2**31, 2**32)],
)
def test_append_for_log_segment_offset_overflow_exception(base: int, largest: int, tmp_path: Path) -> None:
    """LogSegmentTest.testAppendForLogSegmentOffsetOverflowException: an offset that an int32 cannot tell is refused."""
    one = segment(tmp_path)
    one.base_offset = base  # no file name holds a negative base; the rule itself does not care
    data = batch(0, 10)
    with pytest.raises(OffsetOverflowError):
        one.append(largest, iter_headers(data), data)
    assert one.size_bytes == 0
    one.close_handlers()


def test_is_full_rolls(tmp_path: Path) -> None:
    """TimeIndexTest.testIsFull, OffsetIndexTest.appendTooMany: a full index rolls the segment."""
    # 60 bytes: 7 entries in the offset index, 5 in the time index, the last of which is kept for the roll.
    log = writer(tmp_path, segment_index_bytes=60, index_interval_bytes=0)
    for i in range(12):
        log.append_as_follower(batch(i, 1000 + i))
    log.close()
    assert bases(tmp_path) == [0, 5, 10]
    assert [len(time_entries(tmp_path, base)) for base in (0, 5, 10)] == [4, 4, 1]
    log = writer(make(tmp_path / "no-times"), segment_index_bytes=60, index_interval_bytes=0)
    for i in range(20):
        log.append_as_follower(timeless(i))
    log.close()
    assert bases(tmp_path / "no-times") == [0, 8, 16]  # now the offset index is the one that fills
    assert time_entries(tmp_path / "no-times", 0) == []


def make(path: Path) -> Path:
    path.mkdir()
    return path


def timeless(offset: int) -> bytearray:
    return build_batch_v2([Record(offset, NO_TIMESTAMP, CREATE_TIME, None, b"value")])


def test_build_time_index_when_not_assigning_offsets(tmp_path: Path) -> None:
    """UnifiedLogTest.testBuildTimeIndexWhenNotAssigningOffsets: every batch but the first has a time entry."""
    now = 1_600_000_000_000
    log = PartitionWriter(
        tmp_path, LogConfig(index_interval_bytes=1), ManualClock(now), topic_id=TOPIC_ID, start_offset=100, leader_epoch=-1
    )
    for i in range(100):
        log.append_as_follower(batch(100 + i, now + i))
    log.close()
    entries = time_entries(tmp_path, 100)
    assert len(entries) == 99
    assert entries[-1] == (now + 99, 199)
    assert len(offset_entries(tmp_path, 100)) == 99


def test_index_interval_is_checked_before_the_batch_counts(tmp_path: Path) -> None:
    """KAFKA-806: the interval must be exceeded by the bytes before the batch; the batch that gets the entry counts anew."""
    size = len(batch(0, 0))
    exact = writer(make(tmp_path / "exact"), index_interval_bytes=2 * size)
    less = writer(make(tmp_path / "less"), index_interval_bytes=2 * size - 1)
    for i in range(8):
        exact.append_as_follower(batch(i, 1000))
        less.append_as_follower(batch(i, 1000))
    exact.close()
    less.close()
    assert [entry.offset for entry in offset_entries(tmp_path / "exact", 0)] == [3, 6]
    assert [entry.offset for entry in offset_entries(tmp_path / "less", 0)] == [2, 4, 6]
    assert [entry.position for entry in offset_entries(tmp_path / "less", 0)] == [2 * size, 4 * size, 6 * size]
    # All timestamps are the same: one entry, of the first batch that reached it.
    assert time_entries(tmp_path / "less", 0) == [(1000, 0)]


def test_one_append_of_many_batches_is_as_many_appends(tmp_path: Path) -> None:
    """KAFKA-806 again: a follower's fetch of several batches gives the same indexes as one append for each."""
    sets = [batch(3 * i, 1000 * (i % 5), 3) for i in range(40)]
    one, many = (writer(make(tmp_path / name), index_interval_bytes=200) for name in ("one", "many"))
    one.append_as_follower(b"".join(sets) + bytes(sets[0][:30]))  # a partial batch at the end is left out
    for data in sets:
        many.append_as_follower(data)
    one.close()
    many.close()
    for suffix in ("log", "index", "timeindex"):
        name = f"{0:020d}.{suffix}"
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "many" / name).read_bytes()


def test_size_based_log_roll(tmp_path: Path) -> None:
    """UnifiedLogTest.testSizeBasedLogRoll: segment.bytes of 10 * (size - 1) holds nine sets, so eleven make two segments."""
    size = len(batch(0, 0))
    log = writer(tmp_path, segment_bytes=10 * (size - 1))
    for i in range(11):
        log.append_as_follower(batch(i, 0))
    log.close()
    assert bases(tmp_path) == [0, 9]
    assert log.segment_count == 2


def test_a_segment_may_be_exactly_full(tmp_path: Path) -> None:
    size = len(batch(0, 0))
    log = writer(tmp_path, segment_bytes=10 * size)
    for i in range(11):
        log.append_as_follower(batch(i, 0))
    log.close()
    assert bases(tmp_path) == [0, 10]
    assert (tmp_path / f"{0:020d}.log").stat().st_size == 10 * size


def test_time_based_log_roll_during_append(tmp_path: Path) -> None:
    """UnifiedLogTest.testTimeBasedLogRollDuringAppend."""
    hour = 3_600_000
    clock = ManualClock(0)
    log = writer(tmp_path, clock, segment_ms=hour)
    clock.advance(hour + 1)
    log.append_as_leader(timeless(0))
    assert log.segment_count == 1  # an empty segment never rolls
    clock.advance(1)
    log.append_as_leader(batch(0, clock.now_ms() + 10 * hour))
    assert log.segment_count == 2  # wall clock, counted from the segment's creation, as its first batch has no timestamp
    clock.advance(10 * hour)
    log.append_as_leader(batch(0, clock.now_ms()))
    assert log.segment_count == 2  # event time now: the first batch's timestamp, however long the wall clock waits
    log.append_as_leader(batch(0, hour + 2 + 10 * hour + hour))
    assert log.segment_count == 2  # exactly segment.ms later
    log.append_as_leader(timeless(0))
    assert log.segment_count == 2  # no timestamp: never
    log.append_as_leader(batch(0, hour + 2 + 10 * hour + hour + 1))
    assert log.segment_count == 3
    log.append_as_follower(b"")
    assert log.segment_count == 3
    log.close()


def test_wall_clock_counts_where_the_first_batch_has_no_timestamp(tmp_path: Path) -> None:
    """UnifiedLogTest.testTimeBasedLogRollDuringAppend, (b): a future timestamp does not roll early."""
    clock = ManualClock(0)
    log = writer(tmp_path, clock, segment_ms=1000)
    log.append_as_leader(timeless(0))
    log.append_as_leader(batch(0, 10**12))
    assert log.segment_count == 1
    clock.advance(1000)
    log.append_as_leader(batch(0, 0))
    assert log.segment_count == 1
    clock.advance(1)
    log.append_as_leader(batch(0, 0))
    assert log.segment_count == 2
    log.abandon()


def test_time_based_log_roll_jitter(tmp_path: Path) -> None:
    """UnifiedLogTest.testTimeBasedLogRollJitter: not before segment.ms - jitter, certainly once that has passed."""
    clock = ManualClock(DAY_MS)
    config = LogConfig(segment_ms=3_600_000, segment_jitter_ms=1_200_000)
    jitter_ms = random.Random(7).randrange(1_200_000)
    log = PartitionWriter(tmp_path, config, clock, topic_id=TOPIC_ID, jitter=random.Random(7))
    log.append_as_leader(batch(0, DAY_MS))
    log.append_as_leader(batch(0, DAY_MS + config.segment_ms - config.segment_jitter_ms))
    log.append_as_leader(batch(0, DAY_MS + config.segment_ms - jitter_ms))
    assert log.segment_count == 1
    log.append_as_leader(batch(0, DAY_MS + config.segment_ms - jitter_ms + 1))
    assert log.segment_count == 2
    log.abandon()


def test_log_rolls(tmp_path: Path) -> None:
    """UnifiedLogTest.testLogRolls: many small segments; every offset stays readable."""
    log = writer(tmp_path, segment_bytes=100)
    for i in range(100):
        assert log.append_as_leader(batch(0, i)) == i
    log.close()
    assert len(bases(tmp_path)) == 100
    assert [(record.offset, record.timestamp) for record in records(tmp_path)] == [(i, i) for i in range(100)]
    # Every base but the first has a snapshot, and so has the log end.
    assert sorted(int(path.stem) for path in tmp_path.glob("*.snapshot")) == list(range(1, 101))
    assert {path.read_bytes() for path in tmp_path.glob("*.snapshot")} == {bytes.fromhex("0001 48674bc7 00000000")}


def test_roll_segment_that_already_exists(tmp_path: Path) -> None:
    """UnifiedLogTest.testRollSegmentThatAlreadyExists: rolling an empty active segment makes it anew."""
    log = writer(tmp_path)
    log.roll()
    assert (log.segment_count, bases(tmp_path)) == (1, [0])
    log.append_as_leader(batch(0, 5))
    log.roll()
    log.roll()
    assert (log.segment_count, bases(tmp_path)) == (2, [0, 1])
    log.append_as_leader(batch(0, 6))
    log.close()
    assert [record.offset for record in records(tmp_path)] == [0, 1]
    assert sorted(int(path.stem) for path in tmp_path.glob("*.snapshot")) == [1, 2]


def test_over_compacted_log_recovery(tmp_path: Path) -> None:
    """LogLoaderTest.testOverCompactedLogRecovery: an offset out of the int32's reach rolls to that very offset, for v2."""
    log = writer(tmp_path)
    log.append_as_follower(batch(0, 1))
    log.append_as_follower(batch(INT32_MAX + 2, 2))
    log.close()
    assert bases(tmp_path) == [0, INT32_MAX + 2]
    assert (tmp_path / f"{INT32_MAX + 2:020d}.snapshot").exists()
    assert len(list(tmp_path.glob("*.index"))) == 2


def test_over_compacted_log_recovery_multi_record_v1(tmp_path: Path) -> None:
    """LogLoaderTest.testOverCompactedLogRecoveryMultiRecordV1: v1 does not tell its first offset."""
    log = writer(tmp_path)
    one = [Record(0, 1, CREATE_TIME, b"k", b"v")]
    two = [Record(INT32_MAX + 2 + i, 1, CREATE_TIME, b"k", b"v") for i in range(2)]
    three = [Record(INT32_MAX + 4 + i, 1, CREATE_TIME, b"k", b"v") for i in range(2)]
    for data in (one, two, three):
        log.append_as_follower(build_message_set(data, magic=1, codec=Codec.GZIP))
    log.close()
    assert bases(tmp_path) == [0, 3, INT32_MAX + 4]
    assert len(list(tmp_path.glob("*.index"))) == 3
    assert not (tmp_path / "leader-epoch-checkpoint").read_text().split()[2:]  # v1 knows no epochs: the cache is cleared


def test_append_with_out_of_order_offsets_throws_exception(tmp_path: Path) -> None:
    """UnifiedLogTest.testAppendWithOutOfOrderOffsetsThrowsException."""
    log = writer(tmp_path)
    sets = [batch(offset, 1) for offset in (0, 1, 3, 2, 4)]
    with pytest.raises(InvalidOffsetError):
        log.append_as_follower(b"".join(sets))
    assert log.size_bytes == 0  # nothing of a refused append is written
    log.abandon()


def test_append_below_expected_offset_throws_exception(tmp_path: Path) -> None:
    """UnifiedLogTest.testAppendBelowExpectedOffsetThrowsException."""
    log = writer(tmp_path)
    log.append_as_follower(batch(0, 1, 2))
    for offset in (0, 1):
        with pytest.raises(InvalidOffsetError):
            log.append_as_follower(batch(offset, 1))
    log.append_as_follower(batch(2, 1))
    assert log.log_end_offset == 3
    log.abandon()


def test_append_and_read_with_non_sequential_offsets(tmp_path: Path) -> None:
    """UnifiedLogTest.testAppendAndReadWithNonSequentialOffsets."""
    ids = [*range(50), *range(50, 200, 7)]
    log = writer(tmp_path, segment_bytes=200)
    for offset in ids:
        log.append_as_follower(batch(offset, offset))
    log.close()
    assert [record.offset for record in records(tmp_path)] == ids


def test_append_info_first_offset(tmp_path: Path) -> None:
    """UnifiedLogTest.testAppendInfoFirstOffset: 0, 3, 6 for sets of three, over a roll as well."""
    log = writer(tmp_path)
    assert log.append_as_leader(batch(0, 1, 3)) == 0
    assert log.append_as_leader(batch(0, 1, 3)) == 3
    log.roll()
    assert log.append_as_leader(batch(0, 1, 3)) == 6
    log.abandon()


def test_message_set_size_check(tmp_path: Path) -> None:
    """UnifiedLogTest.testMessageSetSizeCheck: a set larger than a segment is refused, one of exactly its size is not."""
    size = len(batch(0, 1, 4))
    log = writer(tmp_path, segment_bytes=size)
    log.append_as_leader(batch(0, 1, 4))
    with pytest.raises(RecordTooLargeError, match=r"segment\.bytes"):
        log.append_as_leader(batch(0, 1, 5))
    assert log.log_end_offset == 4
    log.abandon()


def test_apply_epoch_to_message_on_append_if_leader(tmp_path: Path) -> None:
    """UnifiedLogTest.shouldApplyEpochToMessageOnAppendIfLeader."""
    log = PartitionWriter(tmp_path, LogConfig(), ManualClock(0), topic_id=TOPIC_ID, leader_epoch=72)
    for _ in range(3):
        log.append_as_leader(build_batch_v2([Record(0, 1, CREATE_TIME, None, b"v")]))
    log.close()
    assert {header.leader_epoch for header in headers(tmp_path)} == {72}
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n1\n72 0\n"


def test_follower_should_save_epoch_information(tmp_path: Path) -> None:
    """UnifiedLogTest.followerShouldSaveEpochInformationFromReplicatedMessagesToTheEpochCache."""
    log = PartitionWriter(tmp_path, LogConfig(), ManualClock(0), topic_id=TOPIC_ID, leader_epoch=-1)
    for i, epoch in enumerate((3, 3, 5)):
        log.append_as_follower(build_batch_v2([Record(i, 1, CREATE_TIME, None, b"v")], leader_epoch=epoch))
    log.close()
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n3 0\n5 2\n"


def test_damaged_batches_are_refused(tmp_path: Path) -> None:
    log = writer(tmp_path)
    data = batch(0, 1)
    data[70] ^= 1
    with pytest.raises(CorruptBatchError):
        log.append_as_follower(data)
    with pytest.raises(InvalidArgumentError):
        log.append_as_leader(batch(0, 1) + batch(1, 1))
    log.abandon()


def test_failed_write_leaves_no_half_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A disk that becomes full in the middle of a batch: half of it is written, then the system refuses.
    one = segment(tmp_path)
    put(one, batch(0, 1))
    size = one.size_bytes
    real = os.write
    calls = []

    def short(fd: int, data: object) -> int:
        calls.append(fd)
        if len(calls) == 1:
            return real(fd, memoryview(data)[:20])  # type: ignore[arg-type]
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("tidelog.log.segment_writer.os.write", short)
        with pytest.raises(OSError, match="No space left on device"):
            put(one, batch(1, 2))
    assert (one.size_bytes, one.log_path.stat().st_size) == (size, size)
    put(one, batch(1, 2))
    one.on_become_inactive()
    assert [record.offset for record in records(tmp_path)] == [0, 1]


def test_last_time_entry_goes_into_the_reserved_slot(tmp_path: Path) -> None:
    """TimeIndexTest.testAppend: at a roll the full check is skipped, and the same entry again is none."""
    one = segment(tmp_path, segment_index_bytes=36, index_interval_bytes=0)
    for i in range(3):
        put(one, batch(i, 100 * (i + 1)))
    assert one.time_index.is_full
    assert one.should_roll(RollParams(400, 3, 70, 0))
    one.max_timestamp_so_far, one.offset_of_max_timestamp = 999, 2
    one.on_become_inactive()
    assert time_entries(tmp_path, 0) == [(200, 1), (300, 2), (999, 2)]


def test_empty_log(tmp_path: Path) -> None:
    """UnifiedLogTest.testLoadEmptyLog, the writing half: what a clean stop of Kafka leaves of an empty partition."""
    writer(tmp_path).close()
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == {
        f"{0:020d}.log": 0,
        f"{0:020d}.index": 0,
        f"{0:020d}.timeindex": 0,
        "leader-epoch-checkpoint": 8,
        "partition.metadata": 43,
    }


@settings(max_examples=25, deadline=None)
@given(
    timestamps=st.lists(st.lists(st.integers(-1, 5000), min_size=1, max_size=4), min_size=1, max_size=40),
    segment_bytes=st.integers(400, 3000),
    segment_ms=st.integers(1, 6000),
    interval=st.integers(0, 600),
    index_bytes=st.integers(24, 200),
)
def test_index_invariants(
    tmp_path_factory: pytest.TempPathFactory,
    timestamps: list[list[int]],
    segment_bytes: int,
    segment_ms: int,
    interval: int,
    index_bytes: int,
) -> None:
    """Whatever is appended: entries grow, each names a batch, and up to an entry (T, o) no batch exceeds T."""
    directory = tmp_path_factory.mktemp("log") / "t-0"
    directory.mkdir()
    log = writer(
        directory,
        segment_bytes=segment_bytes,
        segment_ms=segment_ms,
        index_interval_bytes=interval,
        segment_index_bytes=index_bytes,
    )
    for times in timestamps:
        log.append_as_leader(build_batch_v2([Record(i, t, CREATE_TIME, b"k", b"v" * 20) for i, t in enumerate(times)]))
    log.close()
    expected = [t for times in timestamps for t in times]
    assert [(record.offset, record.timestamp) for record in records(directory)] == list(enumerate(expected))
    for base in bases(directory):
        found = list(iter_headers((directory / f"{base:020d}.log").read_bytes()))
        by_position = {header.position: header for header in found}
        offsets, times = offset_entries(directory, base), time_entries(directory, base)
        assert all(by_position[entry.position].last_offset == entry.offset for entry in offsets)
        assert [entry.offset for entry in offsets] == sorted({entry.offset for entry in offsets})
        assert [entry.timestamp for entry in times] == sorted({entry.timestamp for entry in times})
        for timestamp, offset in times:
            assert all(header.max_timestamp <= timestamp for header in found if header.last_offset <= offset)
            assert any(header.max_timestamp == timestamp and header.last_offset == offset for header in found)
        largest = max(header.max_timestamp for header in found)
        assert (times[-1].timestamp if times else -1) == largest
    with Log.open(directory) as opened:
        assert opened.log_end_offset == len(expected)
