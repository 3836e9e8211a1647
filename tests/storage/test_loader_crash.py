"""A kill at every change of a file: what is loaded then is what was there before, what is there after, or a whole part of it.

Whether such a log goes on is asked of every third (`make soak`: of all).
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.examples import IS_SOAK
from tests.storage.crash_states import CrashStates
from tests.storage.partition_logs import NOW_MS, bases, batch, end_txn, headers, offsets, open_log, snapshots
from tidelog.clock import ManualClock
from tidelog.formats.names import file_name
from tidelog.records.batch import iter_headers
from tidelog.records.builder import Producer
from tidelog.records.control import ControlType
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partition.segment_replacement import at_once
from tidelog.storage.segment.log_segment import LogSegment

SIZE = len(batch())
PROPERTIES = {"segment_bytes": 5 * SIZE, "index_interval_bytes": 2 * SIZE, "segment_index_bytes": 120}
COUNT = 23
"""Records before what is interrupted: four full segments, and three in the fifth."""


def filled(tmp_path: Path, clock: ManualClock | None = None, **properties: int) -> PartitionLog:
    log = open_log(tmp_path, clock, **{**PROPERTIES, **properties})
    for i in range(COUNT):
        log.append_as_leader(batch(timestamp=NOW_MS + i, producer=Producer(1, 0, i)), 0)
    log.flush(force_active=True)
    return log


def interrupted(log: PartitionLog, tmp_path: Path, action: Callable[[PartitionLog], object]) -> CrashStates:
    with CrashStates(log.directory, tmp_path / "states") as states:
        action(log)
    assert len(states.folders) > 1
    return states


def reopened(folder: Path, **options: int) -> PartitionLog:
    return open_log(folder.parent, clean=False, **{**PROPERTIES, **options})


turns = itertools.count()


def check_sound(log: PartitionLog) -> None:
    """Indexes say what the log says, the state is that of the log, and the log goes on."""
    if next(turns) % 3 and not IS_SOAK:
        log.close()
        return
    for segment in log.segments:
        by_last_offset = {header.last_offset: header for header in segment.batches()}
        for slot in range(segment.offset_index.entries):
            entry = segment.offset_index.entry(slot)
            assert by_last_offset[entry.offset].position == entry.position
        for slot in range(segment.time_index.entries):
            timestamp, offset = segment.time_index.entry(slot)
            assert by_last_offset[offset].max_timestamp == timestamp
    end = log.log_end_offset
    assert all(offset <= end for offset in snapshots(log.directory))
    entry = log.producer_state.last_entry(1)
    mine = [header.last_sequence for header in headers(log) if header.producer_id == 1]
    assert (entry is None or entry.last_sequence == -1) if not mine else entry is not None and entry.last_sequence == mine[-1]
    before = offsets(log)
    info = log.append_as_leader(batch(timestamp=NOW_MS + 1000), 0)
    assert (info.first_offset, offsets(log)) == (end, [*before, end])
    log.close()
    again = open_log(log.directory.parent, clean=True, **PROPERTIES)
    assert offsets(again) == [*before, end]
    again.close()


def test_append(tmp_path: Path) -> None:
    """Every append is there whole or not at all, and none without those before it."""
    log = filled(tmp_path)

    def append(log: PartitionLog) -> None:
        for i in range(COUNT, COUNT + 4):  # The third one rolls.
            log.append_as_leader(batch(timestamp=NOW_MS + i, producer=Producer(1, 0, i)), 0)

    seen = set()
    for folder in interrupted(log, tmp_path, append).folders:
        for recovery_point in (0, COUNT):
            copy = shutil.copytree(folder, tmp_path / "copy" / folder.name)
            log = reopened(copy, recovery_point=recovery_point)
            assert offsets(log) == list(range(log.log_end_offset))
            seen.add(log.log_end_offset)
            check_sound(log)
            shutil.rmtree(tmp_path / "copy")
    assert seen == {COUNT, COUNT + 1, COUNT + 2, COUNT + 3, COUNT + 4}


@pytest.mark.parametrize("preallocate", [False, True])
def test_roll(tmp_path: Path, preallocate: bool) -> None:
    clock = ManualClock(NOW_MS)
    log = filled(tmp_path, clock, preallocate=preallocate)

    def roll(log: PartitionLog) -> None:
        log.roll()
        log.scheduler.tick()

    for folder in interrupted(log, tmp_path, roll).folders:
        log = reopened(folder, recovery_point=COUNT, preallocate=preallocate)
        assert (offsets(log), bases(log)[:5]) == (list(range(COUNT)), [0, 5, 10, 15, 20])
        check_sound(log)


def test_close(tmp_path: Path) -> None:
    log = filled(tmp_path)
    for folder in interrupted(log, tmp_path, lambda log: log.close()).folders:
        log = reopened(folder, recovery_point=COUNT)
        assert offsets(log) == list(range(COUNT))
        check_sound(log)


@pytest.mark.parametrize("target", [17, 10, 3, 0])
def test_truncation(tmp_path: Path, target: int) -> None:
    """A log that lost its end keeps everything below: no hole, whenever it is interrupted."""
    clock = ManualClock(NOW_MS)
    log = filled(tmp_path, clock)

    def truncate(log: PartitionLog) -> None:
        log.truncate_to(target)
        clock.advance(60_000)
        log.scheduler.tick()

    ends = []
    for folder in interrupted(log, tmp_path, truncate).folders:
        log = reopened(folder, recovery_point=COUNT)
        assert offsets(log) == list(range(log.log_end_offset))
        ends.append(log.log_end_offset)
        check_sound(log)
    assert (ends[0], ends[-1], ends) == (COUNT, target, sorted(ends, reverse=True))


@pytest.mark.parametrize("target", [100, 20, 7])
def test_truncation_of_everything(tmp_path: Path, target: int) -> None:
    """Up to the end there is a part of what was there, without a hole in it, or the new empty log."""
    log = filled(tmp_path)
    for folder in interrupted(log, tmp_path, lambda log: log.truncate_fully_and_start_at(target)).folders:
        log = reopened(folder, recovery_point=COUNT)
        found = offsets(log)
        assert found == list(range(COUNT - len(found), COUNT))
        check_sound(log)
    assert (found, bases(log)) == ([], [target])


def test_retention(tmp_path: Path) -> None:
    """A log that loses its oldest segments keeps the newest: no hole."""
    clock = ManualClock(NOW_MS)
    log = filled(tmp_path, clock)

    def delete_old_segments(log: PartitionLog) -> None:
        log.update_high_watermark(COUNT)
        log.delete_records(13)
        assert log.delete_old_segments() == 2
        clock.advance(60_000)
        log.scheduler.tick()

    starts = []
    for folder in interrupted(log, tmp_path, delete_old_segments).folders:
        log = reopened(folder, recovery_point=COUNT)
        assert offsets(log) == list(range(log.log_start_offset, COUNT))
        starts.append(log.log_start_offset)
        check_sound(log)
    assert (starts[0], starts[-1], starts) == (0, 10, sorted(starts))


def test_replacement(tmp_path: Path) -> None:
    """Compaction of the first three segments into two: all of it shows, or none (LogCleanerTest.testRecoveryAfterCrash)."""
    clock = ManualClock(NOW_MS)
    log = filled(tmp_path, clock)
    kept = {0: [1, 4, 6], 10: [11, 14]}

    def replace(log: PartitionLog) -> None:
        new = []
        for base, wanted in kept.items():
            segment = LogSegment.open(log.directory, base, log.config, clock, suffix=".cleaned")
            for offset in wanted:
                data = batch(offset, timestamp=NOW_MS + offset, producer=Producer(1, 0, offset))
                segment.append(offset, list(iter_headers(data)), data)
            segment.on_become_inactive()
            segment.flush()
            new.append(segment)
        at_once(log.replacing_segments(new, log.segments.values()[:3]))
        clock.advance(60_000)
        log.scheduler.tick()

    old, compacted = list(range(COUNT)), [1, 4, 6, 11, 14, *range(15, COUNT)]
    seen = []
    for folder in interrupted(log, tmp_path, replace).folders:
        log = reopened(folder, recovery_point=COUNT)
        assert offsets(log) in (old, compacted)
        seen.append(offsets(log) == compacted)
        assert bases(log) == ([0, 10, 15, 20] if seen[-1] else [0, 5, 10, 15, 20])
        check_sound(log)
    assert seen == sorted(seen) and not seen[0] and seen[-1]


def test_transactions(tmp_path: Path) -> None:
    """An aborted transaction is known as soon as its marker is."""
    log = open_log(tmp_path, **PROPERTIES)
    log.append_as_leader(batch(count=3, producer=Producer(7, 0, 0), transactional=True), 0)
    for folder in interrupted(log, tmp_path, lambda log: end_txn(log, ControlType.ABORT, 7)).folders:
        log = reopened(folder)
        aborted = log.local.collect_aborted_transactions(0, 10)
        log.update_high_watermark(log.log_end_offset)
        if log.log_end_offset == 4:
            assert ([txn[:3] for txn in aborted], log.last_stable_offset) == ([(7, 0, 3)], 4)
        else:
            assert (aborted, log.last_stable_offset, log.log_end_offset) == ([], 0, 3)
    assert log.log_end_offset == 4


@pytest.mark.parametrize("damage", ["torn", "in the middle", "indexes gone", "txn index broken", "ends before its start"])
def test_recovery_itself(tmp_path: Path, damage: str) -> None:
    """A start that is interrupted again and again comes to the same log in the end."""
    log = filled(tmp_path)
    log.close_handlers()
    folder, options = log.directory, {"recovery_point": 8}
    if damage == "torn":
        with (folder / file_name(20, ".log")).open("ab") as file:
            file.write(batch(COUNT)[:-1])
    elif damage == "in the middle":
        with (folder / file_name(10, ".log")).open("r+b") as file:
            file.seek(2 * SIZE + 65)
            file.write(b"\xff")
    elif damage == "indexes gone":
        for path in folder.glob("*index"):
            path.unlink()
    elif damage == "txn index broken":
        (folder / file_name(0, ".txnindex")).write_bytes(b"nonsense")
    else:
        options["log_start_offset"] = 40
    with CrashStates(folder, tmp_path / "states") as states:
        expected = offsets(open_log(tmp_path, clean=False, **PROPERTIES, **options))
    assert len(expected) == {"in the middle": 12, "ends before its start": 0}.get(damage, COUNT)
    for state in states.folders:
        log = reopened(state, **options)
        assert offsets(log) == expected
        assert log.log_start_offset == (40 if damage == "ends before its start" else 0)
        check_sound(log)


def test_a_missing_time_index_at_a_clean_start(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close()
    path = log.directory / file_name(5, ".timeindex")
    before = path.read_bytes()
    path.unlink()
    with CrashStates(log.directory, tmp_path / "states") as states:
        open_log(tmp_path, clean=True, **PROPERTIES)
    assert len(states.folders) > 1
    for folder in states.folders:
        log = reopened(folder, recovery_point=COUNT)
        assert offsets(log) == list(range(COUNT))
        assert (folder / file_name(5, ".timeindex")).read_bytes() == before
        check_sound(log)
