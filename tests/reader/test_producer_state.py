"""Producer snapshots and what replaying batches makes of them: ProducerStateManagerTest's lines on reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fields import check_fields
from tests.reader import build
from tests.reader.golden import GOLDEN
from tidelog.errors import CorruptSnapshotError
from tidelog.formats.producer_snapshot import ProducerEntry, build_snapshot, parse_snapshot, read_snapshot
from tidelog.reader.producer_state import CompletedTxn, ProducerState
from tidelog.records.batch import BatchHeader, read_header
from tidelog.records.builder import Producer
from tidelog.records.control import ControlType, EndTxnMarker

ENTRY = ProducerEntry(23, 3, 17, 420, 5, 1_600_000_000_000, 7, 400)
ABORT = EndTxnMarker(ControlType.ABORT, 5)
COMMIT = EndTxnMarker(ControlType.COMMIT, 5)


def header(data: bytes) -> BatchHeader:
    return read_header(data)


def data_batch(
    offset: int, records: int = 1, producer_id: int = 1, sequence: int = 0, *, transactional: bool = True
) -> BatchHeader:
    producer = Producer(producer_id, 0, sequence)
    return header(build.batch(offset, [100 + offset] * records, producer=producer, transactional=transactional))


def end(offset: int, kind: ControlType, producer_id: int = 1) -> BatchHeader:
    return header(build.marker(offset, 100 + offset, kind, producer_id))


def test_read_write_snapshot(tmp_path: Path) -> None:
    """ProducerStateManagerTest.testReadWriteSnapshot: the byte layout"""
    data = build_snapshot([ENTRY])
    assert data[:2] == b"\0\1" and data[6:10] == b"\0\0\0\1" and len(data) == 10 + 46
    fields = "0000000000000017 0003 00000011 00000000000001a4 00000005 000001748 76e8000 00000007 0000000000000190"
    assert data[10:] == bytes.fromhex(fields.replace(" ", ""))
    path = tmp_path / "00000000000000000421.snapshot"
    path.write_bytes(data)
    assert read_snapshot(path) == [ENTRY]


def test_an_empty_snapshot_is_kafkas_ten_bytes() -> None:
    assert build_snapshot([]) == bytes.fromhex("0001 48674bc7 00000000")
    assert parse_snapshot(build_snapshot([])) == []


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        build_snapshot([ENTRY])[:-10],
        build_snapshot([ENTRY])[:5],
        build_snapshot([ENTRY]) + b"\0",
        b"\0\2" + build_snapshot([ENTRY])[2:],
        build_snapshot([ENTRY])[:20] + b"\x55" + build_snapshot([ENTRY])[21:],
    ],
)
def test_load_from_damaged_snapshot(damaged: bytes) -> None:
    """ProducerStateManagerTest.testLoadFromEmptySnapshotFile, testLoadFromTruncatedSnapshotFile, testLoadFromCorruptSnapshotFile
    (that the next lower one is taken: see test_transactions)"""
    with pytest.raises(CorruptSnapshotError):
        parse_snapshot(damaged)


def test_snapshots_that_kafka_wrote() -> None:
    """ProducerStateManagerTest.testFetchSnapshotEmptySnapShot: and ones with producers; rebuilt from their entries they are
    the same"""
    found = 0
    for path in GOLDEN.glob("*/*/*/*.snapshot"):
        entries = read_snapshot(path)
        found += len(entries)
        assert build_snapshot(entries) == path.read_bytes()
    assert found > 10


def test_recover_from_snapshot_unfinished_transaction() -> None:
    """ProducerStateManagerTest.testRecoverFromSnapshotUnfinishedTransaction"""
    state = ProducerState()
    for one in (data_batch(0), data_batch(1, sequence=1)):
        state.apply(one)
    again = ProducerState(parse_snapshot(build_snapshot(state.entries())), 2)
    assert again.open_transactions == {1: 0} and again.first_unstable_offset() == 0
    assert again.producers == state.producers and again.producers[1].last_sequence == 1


def test_recover_from_snapshot_finished_transaction() -> None:
    """ProducerStateManagerTest.testRecoverFromSnapshotFinishedTransaction"""
    state = ProducerState()
    for one in (data_batch(0), data_batch(1, sequence=1)):
        state.apply(one)
    assert state.apply(end(2, ControlType.ABORT), ABORT) == CompletedTxn(1, 0, 2, True)
    again = ProducerState(parse_snapshot(build_snapshot(state.entries())), 3)
    assert again.open_transactions == {} and again.first_unstable_offset() is None
    assert again.producers[1].coordinator_epoch == 5


def test_recover_from_snapshot_empty_transaction() -> None:
    """ProducerStateManagerTest.testRecoverFromSnapshotEmptyTransaction, testAppendTxnMarkerWithNoProducerState: no
    transaction ends"""
    state = ProducerState()
    assert state.apply(end(0, ControlType.COMMIT), COMMIT) is None
    (entry,) = parse_snapshot(build_snapshot(state.entries()))
    check_fields(entry, last_offset=-1, last_sequence=-1, current_txn_first_offset=-1, timestamp=100)


def test_first_unstable_offset() -> None:
    """ProducerStateManagerTest.testFirstUnstableOffset: a marker counts when it is below
    the high watermark"""
    state = ProducerState()
    state.apply(data_batch(99, producer_id=1))
    state.apply(data_batch(105, producer_id=2))
    assert state.first_unstable_offset() == 99
    state.apply(end(107, ControlType.COMMIT, 1), COMMIT)
    assert state.first_unstable_offset() == 105
    assert state.first_unstable_offset(high_watermark=106) == 99
    assert state.first_unstable_offset(high_watermark=107) == 99
    assert state.first_unstable_offset(high_watermark=108) == 105
    state.apply(end(109, ControlType.ABORT, 2), ABORT)
    assert state.first_unstable_offset() is None
    assert state.first_unstable_offset(high_watermark=109) == 105
    assert state.first_unstable_offset(high_watermark=110) is None


def test_last_stable_offset_completed_txn() -> None:
    """ProducerStateManagerTest.testLastStableOffsetCompletedTxn"""
    state = ProducerState()
    for producer_id in (1, 2, 3):
        state.apply(data_batch(9 + producer_id, producer_id=producer_id))
    for offset, producer_id, expected in ((15, 2, 10), (16, 1, 12), (17, 3, 18)):
        completed = state.apply(end(offset, ControlType.ABORT, producer_id), ABORT)
        assert completed is not None
        assert state.aborted[-1].last_stable_offset == expected


def test_batches_without_a_transaction() -> None:
    """ProducerStateManagerTest.testSkipEmptyTransactions and idempotent producers: nothing becomes unstable"""
    state = ProducerState()
    state.apply(header(build.batch(0, [1, 2])))
    state.apply(data_batch(2, records=3, transactional=False, sequence=10))
    assert state.first_unstable_offset() is None and state.map_end_offset == 5
    assert state.producers[1] == ProducerEntry(1, 0, 12, 4, 2, 102, -1, -1)
