"""What a power failure takes: nothing below the recovery point, nothing at all after a clean stop, and it leaves nothing torn."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.crash.history import Writer, check_time_search, numbers_of, read_all
from tests.crash.lossy_disk import LossyDisk
from tidelog.clock import ManualClock
from tidelog.formats.checkpoints import read_offset_checkpoint
from tidelog.formats.names import RECOVERY_POINT_CHECKPOINT
from tidelog.model import TopicPartition
from tidelog.records.records import Record
from tidelog.storage.log_manager import LogManager

KEY = TopicPartition("t", 0)
PROPERTIES = {"segment.bytes": 2500, "index.interval.bytes": 150, "segment.index.bytes": 600, "retention.ms": -1}
LOSSES = 5
SEEDS = 60 if os.environ.get("TIDELOG_SOAK") else 5


def same(record: Record) -> tuple[int, bytes | None, bytes | None]:
    return record.timestamp, record.key, record.value


@pytest.mark.parametrize("seed", range(SEEDS))
def test_power_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = random.Random(seed)
    disk = LossyDisk()
    disk.install(monkeypatch)
    try:
        write_and_lose(tmp_path, disk, rng)
    finally:
        disk.release()


def write_and_lose(tmp_path: Path, disk: LossyDisk, rng: random.Random) -> None:
    clock = ManualClock(1_700_000_000_000)
    folder = tmp_path / "disk"
    writer = Writer(0, rng)
    for turn in range(LOSSES):
        with LogManager(folder, clock, properties={"log.initial.task.delay.ms": 0}) as manager:
            if turn == 0:
                manager.create_topic("t", 1, PROPERTIES)
            log = manager.log("t", 0)
            for _ in range(rng.randint(1, 60)):
                writer.append(log)
                log.update_high_watermark(log.log_end_offset)
                choice = rng.random()
                if choice < 0.05:
                    log.flush()
                elif choice < 0.15:
                    clock.advance(rng.choice((1, 100, 70_000)))
                    manager.tick()
                elif choice < 0.2:
                    manager.checkpoint_recovery_points()
            written = read_all(log)
            target = tmp_path / f"after-{turn}"
            disk.lose_power(folder, target, rng)
        look_at_what_is_left(target, written, clock, rng)
        clean = tmp_path / f"clean-{turn}"
        disk.lose_power(folder, clean, rng)
        with LogManager(clean, clock) as manager:
            assert manager.had_clean_shutdown
            assert {o: same(r) for o, r in read_all(manager.log("t", 0)).items()} == {o: same(r) for o, r in written.items()}
            check_time_search(manager.log("t", 0), written, rng)


def look_at_what_is_left(folder: Path, written: dict[int, Record], clock: ManualClock, rng: random.Random) -> None:
    """Nothing but what was written, and all of it that the checkpoint calls flushed; and it goes on from there.

    Of two segments that were not synced the first may have lost its tail, at a batch's end, and the second not: a hole. Kafka
    keeps what is behind it, too.
    """
    recovery_point = read_offset_checkpoint(folder / RECOVERY_POINT_CHECKPOINT).get(KEY, 0)
    with LogManager(folder, clock) as manager:
        assert not manager.had_clean_shutdown
        assert not manager.offline_partitions()
        log = manager.log("t", 0)
        assert log.log_end_offset >= recovery_point
        found = read_all(log, may_have_holes=True)
        assert {o: same(r) for o, r in found.items()} == {o: same(written[o]) for o in found}
        assert found.keys() >= {offset for offset in written if offset < recovery_point}
        check_time_search(log, found, rng)
        went_on = Writer(0, rng, next_number=max(numbers_of(found, 0).values(), default=-1) + 1)
        producers = log.producer_state
        went_on.sequences = {pid: producers.last_entry(pid).last_sequence + 1 for pid in producers.active_producers}
        for _ in range(30):
            went_on.append(log)
        check_time_search(log, read_all(log, may_have_holes=True), rng)
    with LogManager(folder, clock) as manager:
        assert manager.had_clean_shutdown
        check_time_search(manager.log("t", 0), read_all(manager.log("t", 0), may_have_holes=True), rng)
