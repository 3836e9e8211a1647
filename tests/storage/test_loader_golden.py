"""Folders that Kafka itself wrote, loaded: after a clean stop nothing changes; recovery makes the very files that Kafka made."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.reader.golden import GOLDEN, Case, cases
from tidelog.clock import ManualClock
from tidelog.config import LogConfig
from tidelog.formats.producer_snapshot import read_snapshot
from tidelog.records.batch import iter_headers
from tidelog.records.records import iter_records
from tidelog.storage.loading.loader import load
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partition.watermarks import FetchIsolation
from tidelog.storage.scheduler import Scheduler

CONFIG = LogConfig(segment_bytes=16384, index_interval_bytes=512, segment_index_bytes=1200, retention_ms=-1)
NOW_MS = 1_700_000_000_000
INDEXES = (".index", ".timeindex", ".txnindex")

ALL = cases()
STOPPED = [case for case in ALL if case.kind == "log"]
LIVE = [case for case in ALL if case.kind == "live"]


def copied(case: Case, tmp_path: Path) -> Path:
    return shutil.copytree(GOLDEN / case.release / case.kind / f"{case.topic}-{case.partition}", tmp_path / f"{case.topic}-0")


def opened(folder: Path, case: Case, *, clean: bool, recovery_point: int = 0) -> PartitionLog:
    clock = ManualClock(NOW_MS)
    return load(
        folder,
        CONFIG,
        clock,
        Scheduler(clock),
        had_clean_shutdown=clean,
        recovery_point=recovery_point,
        log_start_offset=case.expected["log_start"],
    )


def all_records(log: PartitionLog) -> list[tuple[int, int]]:
    """(offset, timestamp) of what a consumer gets."""
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, FetchIsolation.LOG_END).data
        headers = list(iter_headers(data))
        for header in headers:
            if not header.is_control:
                batch = data[header.position : header.end_position]
                found += [(record.offset, record.timestamp) for record in iter_records(header, batch) if record.offset >= offset]
        if not headers:
            break
        offset = headers[-1].next_offset
    return found


def expected_records(case: Case) -> list[tuple[int, int]]:
    return [(offset, timestamp) for offset, timestamp, *_ in case.expected["records"]]


def files(folder: Path, suffixes: tuple[str, ...] = INDEXES) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in suffixes}


@pytest.mark.parametrize("case", STOPPED, ids=str)
def test_a_clean_start_changes_nothing(case: Case, tmp_path: Path) -> None:
    folder = copied(case, tmp_path)
    before = files(folder, (*INDEXES, ".log"))
    end = folder / f"{case.expected['high_watermark']:020d}.snapshot"
    state = set(read_snapshot(end)) if end.exists() else None
    log = opened(folder, case, clean=True)
    assert (log.log_start_offset, log.log_end_offset) == (case.expected["log_start"], case.expected["high_watermark"])
    assert all_records(log) == expected_records(case)
    log.close()
    assert files(folder, (*INDEXES, ".log")) == before
    assert (set(read_snapshot(end)) if end.exists() else None) == state


@pytest.mark.parametrize("case", STOPPED, ids=str)
def test_recovery(case: Case, tmp_path: Path) -> None:
    """All records are there, and so are their transactions; of 3.9.1 each index is Kafka's byte for byte."""
    folder = copied(case, tmp_path)
    before = {name: data for name, data in files(folder).items() if data or not name.endswith(".txnindex")}
    state = {path.name: set(read_snapshot(path)) for path in folder.glob("*.snapshot")}
    for path in [*folder.glob("*index"), *folder.glob("*.snapshot")]:
        path.unlink()
    log = opened(folder, case, clean=False)
    assert (log.log_start_offset, log.log_end_offset) == (case.expected["log_start"], case.expected["high_watermark"])
    assert all_records(log) == expected_records(case)
    log.close()
    after = files(folder)
    if case.release == "kafka-3.9.1":
        assert {name: after[name] for name in before} == before
        assert {name: after[name] for name in set(after) - set(before)} == {}
    else:  # Other offsets in the time index, and one entry for several batches.
        assert {name for name in after if not name.endswith(".txnindex")} == set(before)
    end = f"{log.log_end_offset:020d}.snapshot"
    if end in state:
        assert set(read_snapshot(folder / end)) == state[end]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("case", LIVE, ids=str)
def test_a_folder_that_was_copied_live(case: Case, tmp_path: Path, clean: bool) -> None:
    """Indexes with zeroed tails, no last time entry, no snapshot at the end; the mark of a clean stop may be there or not."""
    folder = copied(case, tmp_path)
    log = opened(folder, case, clean=clean)
    expected = [one for one in expected_records(case) if one[0] < log.log_end_offset]
    assert all_records(log) == expected and len(expected) > 100
    for timestamp in (expected[0][1], expected[len(expected) // 2][1]):
        if timestamp >= 0:
            found = log.fetch_offset_by_timestamp(timestamp)
            assert found is not None and found.timestamp >= timestamp
    log.close()
    again = opened(folder, case, clean=True)
    assert all_records(again) == expected
