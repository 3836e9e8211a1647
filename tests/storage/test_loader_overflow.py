"""Segments with offsets that their base cannot express: found by recovery, split, and nothing is lost whenever it is
interrupted.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.storage.crash_states import CrashStates
from tests.storage.partition_logs import (
    NOW_MS,
    bases,
    batch,
    config,
    end_txn,
    has_overflow,
    headers,
    open_log,
    records,
    snapshots,
)
from tidelog.clock import ManualClock
from tidelog.config import INT32_MAX
from tidelog.errors import InvalidArgumentError
from tidelog.formats.names import file_name
from tidelog.records.builder import Producer
from tidelog.records.control import ControlType
from tidelog.storage.loading.overflow import split_overflowed_segment
from tidelog.storage.partition.partition_log import PartitionLog

PROPERTIES = {"index_interval_bytes": 1, "segment_index_bytes": 2400, "file_delete_delay_ms": 1000}
SUFFIXES = (".log", ".index", ".timeindex")


def sample(base: int) -> bytes:
    """Four records over the whole range that a segment at `base` can tell (LogTestUtils.writeSampleBatches)."""
    far = base + INT32_MAX - 1
    return bytes(batch(base, value=b"%d" % base) + batch(base + 1, count=2) + batch(far, value=b"%d" % far))


def write(folder: Path, base: int, data: bytes) -> None:
    """A segment with empty indexes, as it is found after an upgrade."""
    (folder / file_name(base, ".log")).write_bytes(data)
    (folder / file_name(base, ".index")).touch()
    (folder / file_name(base, ".timeindex")).touch()


@pytest.fixture
def overflowed(tmp_path: Path) -> Path:
    """Three segments, the second of which holds offsets up to twice of what its base can tell."""
    folder = tmp_path / "log-0"
    folder.mkdir()
    second, third, fourth = INT32_MAX, 2 * INT32_MAX, 3 * INT32_MAX
    write(folder, 0, sample(0))
    write(folder, second, sample(second) + sample(third))
    write(folder, fourth, sample(fourth))
    return folder


SPLIT_AT = 2 * INT32_MAX + 1
"""The first offset that the second segment's base cannot say: one above where the second sample begins."""
EXPECTED_BASES = [0, INT32_MAX, SPLIT_AT, 3 * INT32_MAX]
END = 4 * INT32_MAX


def keys(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in records(log)]


def expected_keys() -> list[tuple[int, bytes]]:
    found = []
    for base in (0, INT32_MAX, 2 * INT32_MAX, 3 * INT32_MAX):
        far = base + INT32_MAX - 1
        found += [(base, b"%d" % base), (base + 1, b"value"), (base + 2, b"value"), (far, b"%d" % far)]
    return found


def check_recovered(log: PartitionLog) -> None:
    assert bases(log) == EXPECTED_BASES
    assert (log.log_start_offset, log.log_end_offset) == (0, END)
    assert keys(log) == expected_keys()
    for segment in log.segments:
        assert not has_overflow(segment)
        assert segment.offset_index.entries == len(list(segment.batches())) - 1
    assert not list(log.directory.glob("*.cleaned")) + list(log.directory.glob("*.swap"))


def test_recovery_of_a_segment_with_offset_overflow(tmp_path: Path, overflowed: Path) -> None:
    """LogLoaderTest.testRecoveryOfSegmentWithOffsetOverflow, UnifiedLogTest.testSplitOnOffsetOverflow"""
    clock = ManualClock(NOW_MS)
    log = open_log(tmp_path, clock, clean=False, **PROPERTIES)
    check_recovered(log)
    assert sorted(path.name for path in overflowed.glob("*.deleted")) == [
        f"{file_name(INT32_MAX, suffix)}.deleted" for suffix in (".index", ".log", ".timeindex")
    ]
    for segment in log.segments:
        with pytest.raises(InvalidArgumentError, match="no offset overflow"):
            split_overflowed_segment(segment, log.segments, log.directory, log.config, clock, log.scheduler)
        for path in overflowed.glob("*.cleaned"):
            path.unlink()
    clock.advance(1000)
    log.scheduler.tick()
    assert not list(overflowed.glob("*.deleted"))
    log.close()
    check_recovered(open_log(tmp_path, clean=True, **PROPERTIES))


def test_after_a_clean_end_it_is_found_where_an_index_is_missing(tmp_path: Path, overflowed: Path) -> None:
    for base in (0, INT32_MAX, 3 * INT32_MAX):
        (overflowed / file_name(base, ".index")).unlink()
    check_recovered(open_log(tmp_path, clean=True, **PROPERTIES))


def test_file_times_stay(tmp_path: Path, overflowed: Path) -> None:
    clock = ManualClock(NOW_MS)
    log = open_log(tmp_path, clock, clean=True, **PROPERTIES)
    segment = log.segments.get(INT32_MAX)
    assert segment is not None
    segment.set_last_modified(1_600_000_000_000)
    result = split_overflowed_segment(segment, log.segments, log.directory, log.config, clock, log.scheduler)
    assert [part.base_offset for part in result.new] == [INT32_MAX, SPLIT_AT]
    assert result.removed == []
    assert [part.last_modified_ms for part in result.new] == [1_600_000_000_000] * 2


def test_degenerate_segment_split(tmp_path: Path) -> None:
    """UnifiedLogTest.testDegenerateSegmentSplit: the first batch is out of reach already; the segment gets its offset."""
    folder = tmp_path / "log-0"
    folder.mkdir()
    first = 10 + INT32_MAX
    write(folder, 0, bytes(batch(first) + batch(first + 1)))
    log = open_log(tmp_path, clean=False, **PROPERTIES)
    assert (bases(log), [header.base_offset for header in headers(log)]) == ([first], [first, first + 1])
    assert (log.log_start_offset, log.log_end_offset) == (first, first + 2)


def test_degenerate_segment_split_with_an_out_of_range_last_offset(tmp_path: Path) -> None:
    """UnifiedLogTest.testDegenerateSegmentSplitWithOutOfRangeBatchLastOffset"""
    folder = tmp_path / "log-0"
    folder.mkdir()
    first = INT32_MAX - 10
    write(folder, 0, bytes(batch(first, count=30) + batch(first + 40)))
    log = open_log(tmp_path, clean=False, **PROPERTIES)
    assert (bases(log), [header.base_offset for header in headers(log)]) == ([first], [first, first + 40])


def test_snapshots_of_a_base_that_goes(tmp_path: Path) -> None:
    folder = tmp_path / "log-0"
    folder.mkdir()
    first = 10 + INT32_MAX
    write(folder, 0, bytes(batch(0)))
    write(folder, 5, bytes(batch(first) + batch(first + 1)))
    (folder / file_name(5, ".snapshot")).write_bytes(bytes.fromhex("000148674bc700000000"))
    log = open_log(tmp_path, clean=False, **PROPERTIES)
    assert (bases(log), snapshots(folder)) == ([0, first], [first, first + 2])


def test_a_torn_tail(tmp_path: Path, overflowed: Path) -> None:
    """It moves to the last of the new segments, and recovery cuts it there, and what follows."""
    with (overflowed / file_name(INT32_MAX, ".log")).open("ab") as file:
        file.write(batch(3 * INT32_MAX - 1)[:-1])
    log = open_log(tmp_path, clean=False, **PROPERTIES)
    assert (bases(log), log.log_end_offset) == (EXPECTED_BASES[:-1], 3 * INT32_MAX)
    assert keys(log) == expected_keys()[:-4]


def test_aborted_transactions_go_with_their_markers(tmp_path: Path) -> None:
    """Kafka's split leaves the transaction index out; without a recovery, aborted records would count."""
    clock = ManualClock(NOW_MS)
    far = 2 * INT32_MAX
    log = open_log(tmp_path, clock, **PROPERTIES)
    log.append_as_leader(batch(producer=Producer(1, 0, 0), transactional=True), 0)
    end_txn(log, ControlType.ABORT, 1)
    log.append_as_follower(batch(far, producer=Producer(2, 0, 0), transactional=True))
    end_txn(log, ControlType.ABORT, 2)
    log.close()
    folder, aborted = log.directory, log.local.collect_aborted_transactions(0, far + 10)
    assert [txn[:3] for txn in aborted] == [(1, 0, 1), (2, far, far + 1)]
    # What a compaction of these two segments into one would have made, before 2.1.
    for suffix in (".log", ".txnindex"):
        with (folder / file_name(0, suffix)).open("ab") as file:
            file.write((folder / file_name(far, suffix)).read_bytes())
    for path in folder.glob(f"{file_name(far, '')}.*"):
        path.unlink()
    log = open_log(tmp_path, clock, clean=True, **PROPERTIES)
    split_overflowed_segment(log.segments.active, log.segments, folder, log.config, clock, log.scheduler)
    assert bases(log) == [0, far]
    log.close()
    log = open_log(tmp_path, clock, clean=True, **PROPERTIES)
    assert log.local.collect_aborted_transactions(0, far + 10) == aborted


class TestInterrupted:
    """LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase1 to 5, and every other moment."""

    def split_files(self, tmp_path: Path, overflowed: Path, endings: dict[int, str], *, old: str) -> None:
        """Leave the files as an interrupted split does: the new ones with these endings, the old ones in place or not."""
        whole = tmp_path / "whole"
        shutil.copytree(overflowed, whole / "log-0")
        open_log(whole, clean=False, **PROPERTIES).close()
        for suffix in SUFFIXES:
            if old == "deleted":
                path = overflowed / file_name(INT32_MAX, suffix)
                path.rename(f"{path}.deleted")
        for base, ending in endings.items():
            for suffix in SUFFIXES:
                shutil.copy(whole / "log-0" / file_name(base, suffix), overflowed / (file_name(base, suffix) + ending))

    @pytest.mark.parametrize(
        ("first", "second", "old"),
        [
            pytest.param(".cleaned", ".cleaned", "in place", id="phase1"),
            pytest.param(".cleaned", ".swap", "in place", id="phase2"),
            pytest.param(".swap", ".swap", "in place", id="phase3"),
            pytest.param(".swap", ".swap", "deleted", id="phase4"),
            pytest.param("", ".swap", "deleted", id="phase5"),
        ],
    )
    def test_phases(self, tmp_path: Path, overflowed: Path, first: str, second: str, old: str) -> None:
        self.split_files(tmp_path, overflowed, {INT32_MAX: first, SPLIT_AT: second}, old=old)
        log = open_log(tmp_path, clean=False, **PROPERTIES)
        check_recovered(log)
        log.close()
        check_recovered(open_log(tmp_path, clean=True, **PROPERTIES))

    def test_at_every_change_of_a_file(self, tmp_path: Path, overflowed: Path) -> None:
        with CrashStates(overflowed, tmp_path / "states") as states:
            open_log(tmp_path, clean=False, **PROPERTIES).close()
        assert len(states.folders) > 40
        for folder in states.folders:
            log = open_log(folder.parent, clean=False, **PROPERTIES)
            check_recovered(log)
            log.close()
            check_recovered(open_log(folder.parent, clean=True, **PROPERTIES))


def test_config_is_the_logs(tmp_path: Path, overflowed: Path) -> None:
    """New segments have the configured interval; Kafka's default of 4 KiB leaves these without entries."""
    log = open_log(tmp_path, clean=False)
    assert bases(log) == EXPECTED_BASES
    assert [segment.offset_index.entries for segment in log.segments] == [0, 0, 0, 0]
    assert log.config == config()
