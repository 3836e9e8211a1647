"""The batches that Apache Kafka wrote, replayed: the same producers as in its snapshots, the same transaction indexes."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.reader.golden import GOLDEN
from tests.storage.producers import manager
from tidelog.clock import ManualClock
from tidelog.formats import names
from tidelog.formats.producer_snapshot import read_snapshot
from tidelog.formats.txn_index import AbortedTxn
from tidelog.records.batch import BatchHeader, iter_headers
from tidelog.records.control import EndTxnMarker, parse_end_txn_marker
from tidelog.records.records import iter_records
from tidelog.storage.producers.producer_state_manager import ProducerStateManager
from tidelog.storage.segment.txn_index_file import TxnIndexFile

FOLDERS = sorted(path for kind in ("log", "live") for path in (GOLDEN / "kafka-3.9.1" / kind).iterdir() if path.is_dir())
# The cleaner and DeleteRecords took away what the older snapshots tell of.
WHOLE = [folder for folder in FOLDERS if not folder.name.startswith(("compacted", "deleted-prefix"))]


def named(folder: Path) -> str:
    return f"{folder.parent.name}-{folder.name}"


def marker_in(header: BatchHeader, data: memoryview) -> EndTxnMarker | None:
    if not header.is_control or header.producer_id < 0:
        return None
    (record,) = iter_records(header, data)
    return parse_end_txn_marker(record.key, record.value)


def replay(state: ProducerStateManager, log: Path, directory: Path, wanted: set[int]) -> None:
    """Replay a segment's file, with its transaction index, and a snapshot at each wanted offset."""
    base_offset = int(log.name[:20])
    index = TxnIndexFile(directory / names.file_name(base_offset, names.TXN_INDEX_SUFFIX), base_offset)
    data = memoryview(log.read_bytes())
    for header in iter_headers(data):
        if header.next_offset <= state.map_end_offset:
            continue
        done = state.replay(header, marker_in(header, data[header.position : header.end_position]))
        if done is not None and done[0].is_aborted:
            completed, last_stable_offset = done
            index.append(AbortedTxn(*completed[:3], last_stable_offset))
        if state.map_end_offset in wanted:
            state.take_snapshot(sync=False)
    index.close()


@pytest.mark.parametrize("folder", WHOLE, ids=named)
def test_the_same_snapshots(folder: Path, tmp_path: Path) -> None:
    state = manager(tmp_path, ManualClock(0))
    snapshots = {int(path.name[:20]): path for path in folder.glob("*.snapshot")}
    for log in sorted(folder.glob("*.log")):
        replay(state, log, tmp_path, set(snapshots))
    for snapshot in snapshots.values():
        assert sorted(read_snapshot(tmp_path / snapshot.name)) == sorted(read_snapshot(snapshot)), snapshot.name
    for index in folder.glob("*.txnindex"):
        assert (tmp_path / index.name).read_bytes() == index.read_bytes()
    assert len(list(tmp_path.glob("*.txnindex"))) == len(list(folder.glob("*.txnindex")))


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_from_any_snapshot_on(folder: Path, tmp_path: Path) -> None:
    """Kafka's own snapshot and the batches behind it give the next one."""
    offsets = sorted(int(path.name[:20]) for path in folder.glob("*.snapshot"))
    logs = sorted(folder.glob("*.log"))
    for start, end in itertools.pairwise(offsets):
        copy = tmp_path / str(start)
        copy.mkdir()
        kafkas = folder / names.file_name(start, names.SNAPSHOT_SUFFIX)
        (copy / kafkas.name).write_bytes(kafkas.read_bytes())
        state = manager(copy, ManualClock(0))
        state.truncate_and_reload(0, end, 0)
        assert state.map_end_offset == start
        for log in logs:
            if start <= int(log.name[:20]) < end:
                replay(state, log, copy, {end})
        wanted = names.file_name(end, names.SNAPSHOT_SUFFIX)
        assert sorted(read_snapshot(copy / wanted)) == sorted(read_snapshot(folder / wanted)), wanted


def test_there_are_producers_in_them() -> None:
    found = {len(read_snapshot(path)) for folder in WHOLE for path in folder.glob("*.snapshot")}
    assert max(found) >= 2
