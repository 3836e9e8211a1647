"""Compaction and transactions: aborted data, markers and their horizons, the transaction index (LogCleanerTest)."""

from __future__ import annotations

from pathlib import Path

from tests.storage.compacting import (
    LARGE_TIMESTAMP,
    abort,
    aborted,
    append,
    batch_base_offsets,
    batch_last_offsets,
    clean,
    clean_segments,
    clean_twice,
    commit,
    compacted_log,
    keys,
    last_sequences,
    make_cleaner,
    offsets_with_values,
    producer,
    read_committed,
)
from tests.storage.partition_logs import NOW_MS, headers
from tidelog.clock import ManualClock
from tidelog.formats.txn_index import AbortedTxn
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.control import ControlType, control_key
from tidelog.records.records import Record
from tidelog.storage.compaction.cleaner import run
from tidelog.storage.compaction.cleaner_stats import CleanerStats
from tidelog.storage.partition.partition_log import PartitionLog

INT64_MAX = 2**63 - 1


def assert_all_complete(log: PartitionLog) -> None:
    assert not [one for one in log.producer_state.active_producers.values() if one.has_open_transaction]


def test_passes_over_a_part(tmp_path: Path) -> None:
    """LogCleanerTest.testMultiPassSegmentCleaningWithAbortedTransactions."""
    clock = ManualClock(NOW_MS)
    log = compacted_log(tmp_path, clock, segment_bytes=1 << 20, delete_retention_ms=50_000)
    first, second = producer(log, 1), producer(log, 2)
    first(1, 2)
    second(2, 3)
    first(3, 4)
    commit(log, 1)
    commit(log, 2)
    first(2, 3)
    abort(log, 1)
    second(4, 5)
    first(5, 6)
    commit(log, 1)
    abort(log, 2)
    second(6, 7)
    commit(log, 2)
    log.roll()
    assert log.log_end_offset == 20
    both = [AbortedTxn(1, 8, 10, 11), AbortedTxn(2, 11, 16, 17)]
    assert_all_complete(log)
    assert aborted(log) == both

    dirty = 0

    def clean_part() -> None:
        nonlocal dirty
        cleaner = make_cleaner(4, clock)  # 0.75 of it: three keys
        segments = log.segments.values(0, log.segments.active.base_offset)
        stats = CleanerStats()
        run(cleaner.build_offset_map(log, dirty, log.segments.active.base_offset, stats))
        dirty = cleaner.offset_map.latest_offset + 1
        assert clean_segments(cleaner, log, segments, clock.now_ms(), INT64_MAX, stats)

    clean_part()
    assert dirty == 4
    assert batch_base_offsets(log) == [0, 2, 4, 6, 7, 10, 13, 15, 16, 17, 19]
    assert offsets_with_values(log) == [0, 2, 3, 4, 5, 6, 7, 10, 13, 14, 15, 16, 17, 18, 19]
    assert_all_complete(log)
    assert aborted(log) == both

    clean_part()
    assert dirty == 14
    assert batch_base_offsets(log) == [0, 2, 4, 6, 7, 10, 13, 15, 16, 17, 19]
    assert offsets_with_values(log) == [0, 2, 4, 5, 6, 7, 10, 13, 14, 15, 16, 17, 18, 19]
    assert aborted(log) == []

    clock.advance(50_000)
    clean_part()
    assert dirty == 20
    assert batch_base_offsets(log) == [0, 2, 4, 6, 7, 13, 15, 17, 19]
    assert offsets_with_values(log) == [0, 2, 4, 5, 6, 7, 13, 15, 17, 18, 19]
    assert_all_complete(log)
    assert aborted(log) == []


def test_basic(tmp_path: Path) -> None:
    """LogCleanerTest.testBasicTransactionAwareCleaning."""
    log = compacted_log(tmp_path, segment_bytes=2048)
    first, second = producer(log, 1), producer(log, 2)
    first(1, 2)
    second(2, 3)
    first(3, 4)
    abort(log, 1)
    commit(log, 2)
    first(2)
    commit(log, 1)
    before = aborted(log)
    log.roll()
    clean(make_cleaner(), log)
    assert keys(log) == [3, 2]
    assert offsets_with_values(log) == [3, 6, 7, 8, 9]
    assert aborted(log) == before


def test_over_segments(tmp_path: Path) -> None:
    """LogCleanerTest.testCleanWithTransactionsSpanningSegments."""
    log = compacted_log(tmp_path)
    first, second, third = producer(log, 1), producer(log, 2), producer(log, 3)
    first(1, 2)
    third(2, 3)
    second(3, 4)
    log.roll()
    second(5, 6)
    third(6, 7)
    first(7, 8)
    abort(log, 2)
    third(8, 9)
    commit(log, 3)
    first(9, 10)
    abort(log, 1)
    cleaner = make_cleaner()
    dirty = clean(cleaner, log)
    assert keys(log) == [2, 3, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10]
    log.roll()
    second(11)
    first(12)
    clean(cleaner, log, dirty)
    assert keys(log) == [2, 3, 6, 7, 8, 9, 11, 12]


def test_commit_marker_removal(tmp_path: Path) -> None:
    """LogCleanerTest.testCommitMarkerRemoval."""
    log = compacted_log(tmp_path, segment_bytes=256)
    write, cleaner = producer(log, 1), make_cleaner()
    write(1)
    write(2, 3)
    commit(log, 1)
    write(2)
    commit(log, 1)
    log.roll()
    dirty = clean(cleaner, log, 0, LARGE_TIMESTAMP)
    assert (keys(log), offsets_with_values(log)) == ([1, 3, 2], [0, 2, 3, 4, 5])
    write(1, 3)
    commit(log, 1)
    log.roll()
    dirty = clean(cleaner, log, dirty, LARGE_TIMESTAMP)
    assert (keys(log), offsets_with_values(log)) == ([2, 1, 3], [3, 4, 5, 6, 7, 8])
    # Nothing dirty is left, but the segments below are rewritten once more, as if there were.
    for now_ms, expected in ((LARGE_TIMESTAMP, [3, 4, 5, 6, 7, 8]), (INT64_MAX, [4, 5, 6, 7, 8])):
        clean_again(log, now_ms)
        assert (keys(log), offsets_with_values(log)) == ([2, 1, 3], expected)


def clean_again(log: PartitionLog, now_ms: int) -> None:
    """A pass whose map is built over the whole log."""
    clean(make_cleaner(), log, 0, now_ms)


def test_deleted_batches(tmp_path: Path) -> None:
    """LogCleanerTest.testDeletedBatchesWithNoMessagesRead: chunks of which nothing stays."""
    log = compacted_log(tmp_path, max_message_bytes=100, segment_bytes=1000)
    cleaner = make_cleaner(io_buffer_bytes=100)
    write = producer(log, 1)
    write(1)
    abort(log, 1)
    write(2)
    write(2)
    commit(log, 1)
    log.roll()
    clean(cleaner, log, 0, LARGE_TIMESTAMP)
    assert (keys(log), offsets_with_values(log)) == ([2], [1, 3, 4])
    clean_twice(cleaner, log, 0)
    assert (keys(log), offsets_with_values(log)) == ([2], [3, 4])


def test_commit_marker_with_an_empty_batch(tmp_path: Path) -> None:
    """LogCleanerTest.testCommitMarkerRetentionWithEmptyBatch."""
    log = compacted_log(tmp_path, segment_bytes=256)
    cleaner = make_cleaner()
    first, second = producer(log, 1), producer(log, 2)
    first(2, 3)
    log.roll()
    second(2, 3)
    commit(log, 2)
    log.roll()
    append(log, 2, 2)
    append(log, 3, 3)
    commit(log, 1)
    log.roll()
    for _ in range(2):
        clean(cleaner, log, 0, LARGE_TIMESTAMP)
        assert keys(log) == [2, 3]
        assert offsets_with_values(log) == [4, 5, 6, 7]
        assert batch_last_offsets(log) == [1, 3, 4, 5, 6, 7]
    second(1)
    commit(log, 2)
    log.roll()
    dirty = clean(cleaner, log, 8, LARGE_TIMESTAMP)
    assert keys(log) == [2, 3, 1]
    assert offsets_with_values(log) == [4, 5, 6, 7, 8, 9]
    assert batch_last_offsets(log) == [1, 4, 5, 6, 7, 8, 9]
    assert dirty == 10
    clean_twice(cleaner, log, 0)
    assert keys(log) == [2, 3, 1]
    assert offsets_with_values(log) == [5, 6, 7, 8, 9]
    assert batch_last_offsets(log) == [1, 5, 6, 7, 8, 9]


def test_empty_control_batch(tmp_path: Path) -> None:
    """LogCleanerTest.testCleanEmptyControlBatch."""
    log = compacted_log(tmp_path, segment_bytes=256)
    cleaner = make_cleaner()
    commit(log, 1)
    append(log, 2, 2)
    append(log, 3, 3)
    log.roll()
    clean_twice(cleaner, log, 0)
    for now_ms in (LARGE_TIMESTAMP, INT64_MAX):
        assert keys(log) == [2, 3]
        assert offsets_with_values(log) == [1, 2]
        assert batch_last_offsets(log) == [0, 1, 2]
        assert headers(log)[0].record_count == 0
        assert headers(log)[0].is_control
        clean(cleaner, log, 0, now_ms)


def test_committed_over_segments(tmp_path: Path) -> None:
    """LogCleanerTest.testCommittedTransactionSpanningSegments."""
    log = compacted_log(tmp_path, segment_bytes=128)
    producer(log, 1)(1)
    log.roll()
    commit(log, 1)
    log.roll()
    clean_twice(make_cleaner(), log, 0)
    assert offsets_with_values(log) == batch_last_offsets(log) == [0, 1]


def test_aborted_over_segments(tmp_path: Path) -> None:
    """LogCleanerTest.testAbortedTransactionSpanningSegments."""
    log = compacted_log(tmp_path, segment_bytes=128)
    producer(log, 1)(1)
    log.roll()
    abort(log, 1)
    log.roll()
    for now_ms in (LARGE_TIMESTAMP, INT64_MAX):
        clean(make_cleaner(), log, 0, now_ms)
        assert offsets_with_values(log) == [1]
        assert batch_last_offsets(log) == [0, 1]


def test_abort_marker_removal(tmp_path: Path) -> None:
    """LogCleanerTest.testAbortMarkerRemoval."""
    log = compacted_log(tmp_path, segment_bytes=256)
    cleaner, write = make_cleaner(), producer(log, 1)
    write(1)
    write(2, 3)
    abort(log, 1)
    write(3)
    commit(log, 1)
    log.roll()
    clean(cleaner, log, 0, LARGE_TIMESTAMP)
    assert (keys(log), offsets_with_values(log)) == ([3], [3, 4, 5])
    clean_twice(cleaner, log, 0)
    assert (keys(log), offsets_with_values(log)) == ([3], [4, 5])


def test_sequences_used_again(tmp_path: Path) -> None:
    """LogCleanerTest.testEmptyBatchRemovalWithSequenceReuse: group coordinators always begin with sequence 0."""
    log = compacted_log(tmp_path, segment_bytes=2048)
    cleaner = make_cleaner()
    producer(log, 1, replicated=True)(1)
    commit(log, 1)
    producer(log, 1, replicated=True)(2)
    commit(log, 1)
    append(log, 1, 1)
    append(log, 2, 1)
    log.roll()
    clean(cleaner, log, 0, LARGE_TIMESTAMP)
    assert offsets_with_values(log) == [1, 3, 4, 5]
    assert batch_last_offsets(log) == [1, 2, 3, 4, 5]
    clean_twice(cleaner, log, 0)
    assert offsets_with_values(log) == [3, 4, 5]
    assert batch_last_offsets(log) == [2, 3, 4, 5]


def test_abort_marker_with_an_empty_batch(tmp_path: Path) -> None:
    """LogCleanerTest.testAbortMarkerRetentionWithEmptyBatch."""
    log = compacted_log(tmp_path, segment_bytes=256)
    cleaner, write = make_cleaner(), producer(log, 1)
    write(2, 3)
    abort(log, 1)
    log.roll()

    def assert_indexed() -> None:
        (txn,) = aborted(log, 100)
        assert (txn.producer_id, txn.first_offset, txn.last_offset) == (1, 0, 2)

    assert_indexed()
    clean(cleaner, log, 0, LARGE_TIMESTAMP)
    for _ in range(2):
        assert_indexed()
        assert keys(log) == []
        assert offsets_with_values(log) == [2]
        assert batch_last_offsets(log) == [1, 2]
        clean_twice(cleaner, log, 0)
    write(1)
    log.roll()
    clean(cleaner, log, 3, LARGE_TIMESTAMP)
    assert_indexed()
    assert keys(log) == [1]
    assert offsets_with_values(log) == batch_last_offsets(log) == [2, 3]
    clean_twice(cleaner, log, 0)
    assert keys(log) == [1]
    assert offsets_with_values(log) == batch_last_offsets(log) == [3]
    assert aborted(log, 100) == []


def test_last_sequence_of_an_aborted_transaction(tmp_path: Path) -> None:
    """LogCleanerTest.testLogCleanerRetainsLastSequenceEvenIfTransactionAborted."""
    log = compacted_log(tmp_path)
    cleaner, write = make_cleaner(), producer(log, 1)
    write(1)
    write(2, 3)
    abort(log, 1)
    log.roll()
    clean(cleaner, log)
    assert batch_last_offsets(log) == [2, 3]
    assert last_sequences(log) == {1: 2}
    assert keys(log) == []
    assert offsets_with_values(log) == [3]
    write(1, 5)
    log.roll()
    clean(cleaner, log)
    assert batch_last_offsets(log) == [3, 5]
    assert last_sequences(log) == {1: 4}
    assert keys(log) == [1, 5]
    assert offsets_with_values(log) == [3, 4, 5]


def test_keys_like_those_of_markers(tmp_path: Path) -> None:
    """LogCleanerTest.testCleaningWithKeysConflictingWithTxnMarkerKeys."""
    log = compacted_log(tmp_path)
    producer(log, 1)(1)
    commit(log, 1)
    key = control_key(ControlType.COMMIT)
    log.append_as_leader(
        build_batch_v2([Record(0, NOW_MS, CREATE_TIME, key, b"foo")], producer=Producer(2, 0, 0), is_transactional=True), 0
    )
    commit(log, 2)
    log.roll()
    clean(make_cleaner(), log)
    assert batch_last_offsets(log) == [0, 1, 2, 3]
    assert offsets_with_values(log) == [0, 1, 2, 3]


def test_read_committed_is_the_same(tmp_path: Path) -> None:
    """The latest committed record of each key stays visible to a transactional reader, and nothing aborted becomes so."""
    log = compacted_log(tmp_path, segment_bytes=400)
    cleaner = make_cleaner()
    first, second = producer(log, 1), producer(log, 2)
    for key in range(12):
        first(key % 3, 7)
        second(key % 4, 8)
        (abort if key % 3 == 1 else commit)(log, 1)
        (abort if key % 4 == 2 else commit)(log, 2)
    log.update_high_watermark(log.log_end_offset)
    log.roll()
    before = read_committed(log)
    clean(cleaner, log)
    after = read_committed(log)
    assert {record.key: record for record in after} == {record.key: record for record in before}
    assert set(after) <= set(before)
    assert len(after) == 6 < len(before)
