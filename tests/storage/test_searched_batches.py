"""Offsets by time in compressed batches, for a thread that serves many clients: large ones are searched on another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.partition_logs import NOW_MS, open_log
from tidelog.errors import CorruptDataError, TidelogError
from tidelog.formats.non_blocking_read import non_blocking
from tidelog.model import MAX_TIMESTAMP
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.records import Record
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.segment import searched_batches
from tidelog.storage.segment.log_segment import TimestampAndOffset
from tidelog.storage.segment.searched_batches import NotSearchedError

RECORDS = 40
BATCHES = 6
TIMES = (NOW_MS, NOW_MS + 3, NOW_MS + RECORDS * (BATCHES - 1), NOW_MS + RECORDS * BATCHES - 1, MAX_TIMESTAMP)


def compressed(number: int, codec: Codec, value_bytes: int = 100) -> bytearray:
    first = number * RECORDS
    made = [Record(i, NOW_MS + first + i, CREATE_TIME, None, bytes(value_bytes)) for i in range(RECORDS)]
    return build_batch_v2(made, codec=codec)


def in_turns(log: PartitionLog, timestamp: int) -> tuple[TimestampAndOffset | None, int]:
    """What a thread that serves clients finds, and how often it had another one search."""
    for searches in range(100):
        try:
            with non_blocking():
                return log.fetch_offset_by_timestamp(timestamp), searches
        except NotSearchedError as missing:
            missing.prefetch()
    raise AssertionError("it does not end")


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_large_batches_are_searched_on_another_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: Codec) -> None:
    log = open_log(tmp_path)
    for number in range(BATCHES):
        log.append_as_leader(compressed(number, codec), 0)
    expected = {timestamp: log.fetch_offset_by_timestamp(timestamp) for timestamp in TIMES}
    assert None not in expected.values()
    assert {timestamp: in_turns(log, timestamp) for timestamp in TIMES} == {key: (found, 0) for key, found in expected.items()}
    monkeypatch.setattr(searched_batches, "AT_ONCE_BYTES", 1000)
    assert {timestamp: in_turns(log, timestamp) for timestamp in TIMES} == {key: (found, 1) for key, found in expected.items()}
    assert {timestamp: in_turns(log, timestamp)[1] for timestamp in TIMES} == dict.fromkeys(TIMES, 0)  # It is known now.
    log.truncate_to(RECORDS)
    log.append_as_leader(compressed(BATCHES, codec), 0)
    for timestamp in TIMES:
        assert in_turns(log, timestamp)[0] == log.fetch_offset_by_timestamp(timestamp)


def test_few_results_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searched_batches, "AT_ONCE_BYTES", 1000)
    monkeypatch.setattr(searched_batches, "KEPT", 3)
    log = open_log(tmp_path)
    for number in range(BATCHES):
        log.append_as_leader(compressed(number, Codec.ZSTD), 0)
    for timestamp in range(NOW_MS, NOW_MS + RECORDS * BATCHES):
        assert in_turns(log, timestamp) == ((timestamp, timestamp - NOW_MS, 0), 1)
        assert len(log.segments.active.searched._results) <= 3


def test_what_is_wrong_with_a_batch_is_raised_where_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searched_batches, "AT_ONCE_BYTES", 1000)
    log = open_log(tmp_path)
    log.append_as_leader(compressed(0, Codec.ZSTD), 0)

    def damaged(*_: object, limit_bytes: int, **__: object) -> None:
        if limit_bytes > 1000:
            raise CorruptDataError("damaged")
        raise TidelogError from None

    with non_blocking(), pytest.raises(NotSearchedError) as raised:
        log.fetch_offset_by_timestamp(NOW_MS)
    monkeypatch.setattr("tidelog.storage.segment.segment_reader.first_record_at", damaged)
    raised.value.prefetch()
    with non_blocking(), pytest.raises(CorruptDataError, match="damaged"):
        log.fetch_offset_by_timestamp(NOW_MS)
