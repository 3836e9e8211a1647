"""A compaction that a crash interrupts: the log as before, or as after (LogCleanerTest.testRecoveryAfterCrash)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.compacting import all_records, clean_segments, compacted_log, fill, forget, keys, make_cleaner
from tidelog.storage.partition.partition_log import PartitionLog

STAGES = ("cleaned", "some swapped", "swap", "swap, old ones deleted", "time index left", "done")


def rename(directory: Path, base_offset: int, old: str, new: str, kinds: tuple[str, ...]) -> None:
    for kind in kinds:
        path = directory / f"{base_offset:020d}{kind}{old}"
        if path.exists():
            path.rename(directory / f"{base_offset:020d}{kind}{new}")


def restore_deleted(directory: Path) -> None:
    for path in directory.glob("*.deleted"):
        path.rename(path.with_suffix(""))


def compacted(directory: Path) -> tuple[PartitionLog, list[int], list[int]]:
    """A log of which nine segments became one, the old ones' files not removed yet; its keys before and after."""
    log = compacted_log(directory, segment_bytes=300, index_interval_bytes=1)
    fill(log, 10)
    log.flush()
    before = keys(log)
    cleaner = make_cleaner()
    forget(cleaner, range(1, len(before), 2))
    assert clean_segments(cleaner, log, list(log.segments)[:9])
    return log, before, keys(log)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("clean", [True, False])
def test_recovery(tmp_path: Path, stage: str, clean: bool) -> None:
    """LogCleanerTest.testRecoveryAfterCrash."""
    log, before, after = compacted(tmp_path)
    assert after == before[::2] + [key for key in before[1::2] if key >= log.segments.active.base_offset]
    recovery_point = log.recovery_point
    log.close()  # without the scheduler's delayed deletions
    directory = log.directory
    every = (".log", ".index", ".timeindex", ".txnindex")
    expected = after
    if stage == "cleaned":
        rename(directory, 0, "", ".cleaned", every)
        restore_deleted(directory)
        expected = before
    elif stage == "some swapped":
        rename(directory, 0, "", ".cleaned", every)
        rename(directory, 0, ".cleaned", ".swap", (".log",))
        restore_deleted(directory)
        expected = before
    elif stage == "swap":
        rename(directory, 0, "", ".swap", every)
        restore_deleted(directory)
    elif stage == "swap, old ones deleted":
        rename(directory, 0, "", ".swap", every)
    elif stage == "time index left":
        rename(directory, 0, "", ".swap", (".timeindex",))
    again = compacted_log(tmp_path, clean=clean, recovery_point=recovery_point, segment_bytes=300, index_interval_bytes=1)
    assert keys(again) == expected
    assert again.log_end_offset == len(before)
    assert not list(directory.glob("*.swap")) + list(directory.glob("*.cleaned")) + list(directory.glob("*.deleted"))
    for record in all_records(again):
        assert again.read(record.offset, 1).metadata.message_offset == record.offset
    again.close()
