"""Compaction in the background: slices, aborts, errors, retention of compacted logs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.storage.compacting import abort, all_records, append, compressed, fill, keys, producer, record
from tests.storage.partition_logs import NOW_MS
from tests.storage.test_cleaner_manager import World
from tidelog.errors import StorageError
from tidelog.model import TopicPartition
from tidelog.records import filter as record_filter
from tidelog.records.compression import Bytes, Codec
from tidelog.storage.compaction import group_writer, log_cleaner
from tidelog.storage.compaction.cleanable import LogToClean
from tidelog.storage.compaction.cleaner import Cleaner
from tidelog.storage.compaction.cleaner_manager import RETRY_AFTER_MS, CleaningState
from tidelog.storage.compaction.log_cleaner import LOGS_A_STEP, LOOK_BYTES, LogCleaner
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.segment.log_file import LogFile


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def cleaner_of(world: World, slice_bytes: int = 16 << 20, io_buffer_bytes: int = 512) -> LogCleaner:
    cleaner = Cleaner(world.clock, memory_bytes=24_000, io_buffer_bytes=io_buffer_bytes)
    return LogCleaner(world.manager, cleaner, slice_bytes=slice_bytes)


def dirty_log(world: World, name: str = "log", segments: int = 6) -> PartitionLog:
    log = world.log(name, segment_bytes=1024)
    fill(log, segments, keys=5)
    log.update_high_watermark(log.log_end_offset)
    return log


def test_one_log_after_the_other(world: World) -> None:
    logs = [dirty_log(world, f"topic-{n}", 4 + n) for n in range(3)]
    cleaner = cleaner_of(world)
    cleaned = 0
    while cleaner.clean_filthiest_log():
        cleaned += 1
    assert cleaned == 3
    assert world.manager.checkpoints == {log.topic_partition: log.segments.active.base_offset for log in logs}
    for log in logs:
        assert sorted(set(keys(log))) == [0, 1, 2, 3, 4]
        assert len(keys(log)) <= 5 + 14
    assert cleaner.last_stats is not None
    assert cleaner.last_stats.messages_written == 5


def test_slices(world: World) -> None:
    """A pass takes many ticks, and the log is appended to in between."""
    log = dirty_log(world, segments=8)
    cleaner = cleaner_of(world, slice_bytes=600)
    cleaner.start(world.scheduler, backoff_ms=15_000)
    ticks = 0
    while world.manager.state(log.topic_partition) is CleaningState.IN_PROGRESS or not ticks:
        world.scheduler.tick()
        append(log, ticks % 5, ticks)
        ticks += 1
        assert ticks < 100
    assert ticks > 10
    assert world.manager.checkpoints[log.topic_partition] > 0
    assert not list(log.directory.glob("*.cleaned"))
    log.update_high_watermark(log.log_end_offset)
    for _ in range(3):
        world.scheduler.tick()
    world.clock.advance(15_000)
    for _ in range(100):
        world.scheduler.tick()
    assert world.manager.checkpoints == {log.topic_partition: log.segments.active.base_offset}


def test_the_dirtiest_of_few_is_chosen_anew_before_each_pass(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Kafka's rule: what became dirtier during a pass comes before what the last look had found next."""
    first, second, third = (dirty_log(world, name, segments) for name, segments in (("a", 8), ("b", 7), ("c", 4)))
    # Half of the last one is clean, until more is appended.
    world.manager.update_checkpoint(third.topic_partition, third.segments.base_offsets[2])
    world.manager.update_checkpoint(second.topic_partition, second.segments.base_offsets[1])
    cleaner = cleaner_of(world)
    order = []
    with caplog.at_level(logging.INFO, "tidelog.storage"):
        while cleaner.work(1 << 30):
            order = [one.getMessage().rpartition("/")[2][:3] for one in caplog.records if "compacted up to" in one.getMessage()]
            if len(order) == 1 and len(third.segments) == 4:
                fill(third, 40, keys=5)
                third.update_high_watermark(third.log_end_offset)
    assert order == ["a-0", "c-0", "b-0"]
    assert set(keys(first)) == set(keys(second)) == set(keys(third)) == {0, 1, 2, 3, 4}


def test_many_logs_are_not_looked_at_before_each_pass(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of small ones that would take longer than all passes; nor does one slice look at all of them."""
    monkeypatch.setattr(log_cleaner, "PASS_BYTES", LOOK_BYTES)  # As if there were a hundred times as many.
    logs = [dirty_log(world, f"topic-{n}", 3) for n in range(40)]
    cleaner = cleaner_of(world, slice_bytes=1)
    looked_at = 0
    look = world.manager.look

    def counted(key: TopicPartition) -> LogToClean | None:
        nonlocal looked_at
        looked_at += 1
        return look(key)

    monkeypatch.setattr(world.manager, "look", counted)
    cleaner.start(world.scheduler)
    world.scheduler.tick()
    assert looked_at == LOGS_A_STEP
    while world.scheduler.tick():
        pass
    assert world.manager.checkpoints == {log.topic_partition: log.segments.active.base_offset for log in logs}
    assert looked_at <= 4 * len(logs)


class Elsewhere:
    """Threads of the scheduler's owner: what they are given is done when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], object], Callable[[object], None]]] = []
        self.is_here = True

    def __call__(self, work: Callable[[], object], done: Callable[[object], None]) -> None:
        self.waiting.append((work, done))

    def do_next(self) -> None:
        work, done = self.waiting.pop(0)
        self.is_here = False
        result: object
        try:
            result = work()
        except Exception as error:
            result = error
        self.is_here = True
        done(result)


@pytest.fixture
def elsewhere(world: World, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    """Compressed batches are opened, and made, there only."""
    threads = Elsewhere()
    world.scheduler.elsewhere = threads
    for name in ("decompress", "compress"):
        real = getattr(record_filter, name)

        def checked(codec: Codec, data: Bytes, *args: Any, real: Any = real, **kwargs: Any) -> Bytes:
            assert not threads.is_here or codec is Codec.NONE
            return real(codec, data, *args, **kwargs)

        monkeypatch.setattr(record_filter, name, checked)
    return threads


def mixed_log(world: World) -> PartitionLog:
    """Plain and compressed batches, and an aborted transaction that the second half of a batch is in."""
    log = world.log(segment_bytes=1024)
    aborting = producer(log, 7)
    while len(log.segments) < 6:
        for codec in (Codec.GZIP, Codec.NONE, Codec.ZSTD):
            log.append_as_leader(compressed(range(3), codec), 0)
        aborting(0, 1)
        abort(log, 7)
        log.append_as_leader(compressed(range(2, 5), Codec.LZ4), 0)
    log.update_high_watermark(log.log_end_offset)
    return log


def test_compressed_batches_are_worked_on_elsewhere(world: World, elsewhere: Elsewhere) -> None:
    """Some kilobytes may unpack to a hundred megabytes. What stays is what stays without threads."""
    log = mixed_log(world)
    cleaner = cleaner_of(world)
    cleaner.start(world.scheduler)
    world.scheduler.tick()
    done = 0
    while elsewhere.waiting:
        elsewhere.do_next()
        done += 1
        world.scheduler.tick()
    assert done > 10
    assert world.manager.checkpoints == {log.topic_partition: log.segments.active.base_offset}
    compacted = [one for one in all_records(log) if one.offset < log.segments.active.base_offset]
    assert {one.key for one in compacted} <= {b"%d" % key for key in range(5)}
    latest = {one.key: one.offset for one in all_records(log)}
    kept = {one.key: one.offset for one in compacted}
    assert all(latest[key] >= offset for key, offset in kept.items()) and len(compacted) == len(kept)


def test_a_pass_that_ends_while_it_is_worked_on_elsewhere(world: World, elsewhere: Elsewhere) -> None:
    """What comes of it then counts for nothing, and touches nothing of the pass after it."""
    log = mixed_log(world)
    key = log.topic_partition
    cleaner = cleaner_of(world)
    cleaner.start(world.scheduler)
    for ended in range(12):
        world.scheduler.tick()
        for _ in range(ended):
            if elsewhere.waiting:
                elsewhere.do_next()
                world.scheduler.tick()
        late, elsewhere.waiting[:] = list(elsewhere.waiting), []
        world.manager.abort_and_pause_cleaning(key)
        world.manager.resume_cleaning([key])
        assert not list(log.directory.glob("*.cleaned"))
        world.clock.advance(15_000)
        world.scheduler.tick()
        if elsewhere.waiting:
            elsewhere.do_next()
        elsewhere.waiting[:0] = late
    while elsewhere.waiting:
        elsewhere.do_next()
        world.scheduler.tick()
        world.clock.advance(15_000)
        world.scheduler.tick()
    assert world.manager.state(key) is None
    assert world.manager.checkpoints == {key: log.segments.active.base_offset}
    assert {int(one.key or b"") for one in all_records(log)} == {0, 1, 2, 3, 4}
    compacted = [one.key for one in all_records(log) if one.offset < log.segments.active.base_offset]
    assert len(compacted) == len(set(compacted))


@pytest.mark.parametrize("is_abandoned", [False, True])
def test_a_pass_that_ends_while_another_thread_writes(
    world: World, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch, is_abandoned: bool
) -> None:
    """That thread still uses the new segment's files: it closes and removes them, and the next pass waits for that."""
    log = mixed_log(world)
    key = log.topic_partition
    cleaner = cleaner_of(world)
    cleaner.start(world.scheduler)
    real, reads = group_writer.read_batches, 0

    def read_while_the_pass_ends(source: LogFile, position: int, buffer_bytes: int) -> memoryview:
        nonlocal reads
        reads += 1
        if reads == 2:
            if is_abandoned:
                cleaner.abandon()
            else:
                world.manager.abort_cleaning(key)
            assert list(log.directory.glob("*.log.cleaned"))
        return real(source, position, buffer_bytes)

    monkeypatch.setattr(group_writer, "read_batches", read_while_the_pass_ends)
    world.scheduler.tick()
    while reads < 2:
        late = elsewhere.waiting.pop(0)
        elsewhere.is_here = False
        result = late[0]()
        elsewhere.is_here = True
        if reads < 2:
            late[1](result)
            world.scheduler.tick()
    assert reads == 2
    assert bool(list(log.directory.glob("*.cleaned"))) == is_abandoned
    world.clock.advance(15_000)
    world.scheduler.tick()
    assert not elsewhere.waiting
    late[1](result)
    world.scheduler.tick()
    assert bool(elsewhere.waiting) is not is_abandoned
    while elsewhere.waiting:
        elsewhere.do_next()
        world.scheduler.tick()
    assert world.manager.checkpoints == ({} if is_abandoned else {key: log.segments.active.base_offset})


def test_nothing_to_do(world: World) -> None:
    """One look every fifteen seconds, and no more."""
    world.log()
    cleaner = cleaner_of(world)
    cleaner.start(world.scheduler, backoff_ms=15_000)
    assert world.scheduler.tick() == 1
    assert world.scheduler.tick() == 0
    assert cleaner.clean_filthiest_log() is False
    assert cleaner.work(1) is False
    assert world.scheduler.next_due_ms == NOW_MS + 15_000


def test_shutdown_ends_a_pass(world: World) -> None:
    log = dirty_log(world)
    before = keys(log)
    cleaner = cleaner_of(world, slice_bytes=1)
    cleaner.start(world.scheduler)
    while not list(log.directory.glob("*.cleaned")):
        world.scheduler.tick()
    cleaner.shutdown()
    assert not list(log.directory.glob("*.cleaned"))
    assert keys(log) == before
    assert world.manager.state(log.topic_partition) is None
    world.clock.advance(100_000)
    world.scheduler.tick()
    assert world.manager.state(log.topic_partition) is None
    cleaner.shutdown()


def test_truncation_ends_a_pass(world: World) -> None:
    log = dirty_log(world)
    key = log.topic_partition
    cleaner = cleaner_of(world, slice_bytes=1)
    cleaner.start(world.scheduler)
    while not list(log.directory.glob("*.cleaned")):
        world.scheduler.tick()
    world.manager.abort_and_pause_cleaning(key)
    log.truncate_to(20)
    world.manager.maybe_truncate_checkpoint(key, 20)
    assert not list(log.directory.glob("*.cleaned"))
    for _ in range(3):
        world.clock.advance(15_000)
        world.scheduler.tick()
    assert world.manager.state(key) is CleaningState.PAUSED
    world.manager.resume_cleaning([key])
    assert cleaner.clean_filthiest_log()
    assert set(keys(log)) == {0, 1, 2, 3, 4}
    assert log.log_end_offset == 20


def test_damage_makes_a_log_uncleanable(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The file is left as it is, and another log is compacted all the same."""
    broken, sound = dirty_log(world, "broken", 8), dirty_log(world, "sound")
    path = broken.directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 0xFF
    path.write_bytes(data)
    cleaner = cleaner_of(world)
    with caplog.at_level(logging.WARNING, "tidelog.storage"):
        while cleaner.clean_filthiest_log():
            pass
    assert set(world.manager.uncleanable_partitions) == {broken.topic_partition}
    assert "checksum" in world.manager.uncleanable_partitions[broken.topic_partition]
    assert "broken-0 is no longer compacted" in caplog.text
    assert path.read_bytes() == data
    assert world.manager.checkpoints == {sound.topic_partition: sound.segments.active.base_offset}
    assert not broken.is_offline


def test_full_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No key is lost, the log goes on, and compaction is tried again later."""
    log = dirty_log(world)
    before = keys(log)[-15:]
    cleaner = cleaner_of(world)
    write = LogFile.append

    def full(self: LogFile, data: Bytes) -> int:
        if self.path.name.endswith(".cleaned"):
            raise StorageError("cannot write: no space left on device", path=self.path)
        return write(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(LogFile, "append", full)
        assert cleaner.clean_filthiest_log()
        assert not cleaner.clean_filthiest_log()
    assert not list(log.directory.glob("*.cleaned"))
    assert keys(log)[-15:] == before
    assert not log.is_offline
    append(log, 1, 1)
    world.clock.advance(RETRY_AFTER_MS)
    assert cleaner.clean_filthiest_log()
    assert set(keys(log)) == {0, 1, 2, 3, 4}
    assert len(keys(log)) < 15


def test_offline_in_between(world: World) -> None:
    log = dirty_log(world)
    cleaner = cleaner_of(world, slice_bytes=1)
    cleaner.work(1)
    assert world.manager.state(log.topic_partition) is CleaningState.IN_PROGRESS
    log.go_offline("append", OSError("gone"))
    cleaner.work(1)
    assert world.manager.state(log.topic_partition) is None
    assert cleaner.work(1) is False


def test_replacement_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fails while segments are put in place: that takes the partition offline, as any write does."""
    log = dirty_log(world)

    def refuse(*_: object) -> None:
        raise StorageError("cannot rename")

    monkeypatch.setattr(log.local, "replacing_segments", refuse)
    cleaner = cleaner_of(world)
    assert cleaner.clean_filthiest_log()
    assert log.is_offline
    assert not cleaner.clean_filthiest_log()


def test_split_first(world: World) -> None:
    """A segment with offsets that its base cannot express is split by the first pass and compacted by the second."""
    log = world.log(segment_bytes=1 << 20)
    append(log, 0, 0)
    append(log, 1, 1)
    segment = log.segments.active
    segment.log.append(record(1, 2, offset=2**31 + 5))
    segment.log.append(record(0, 3, offset=2**31 + 6))
    log.local.update_log_end_offset(2**31 + 7)
    log.local.roll()
    log.update_high_watermark(log.log_end_offset)
    cleaner = cleaner_of(world)
    assert cleaner.clean_filthiest_log()
    assert log.segments.base_offsets == [0, 2**31 + 5, 2**31 + 7]
    assert keys(log) == [0, 1, 1, 0]
    assert cleaner.clean_filthiest_log()
    assert keys(log) == [1, 0]
    assert not cleaner.clean_filthiest_log()


def test_retention_of_compacted_logs(world: World) -> None:
    """compact,delete: old segments go by time as well, from here and not while a pass is under way."""
    log = world.log(policy="compact,delete", segment_bytes=1024, retention_ms=1000)
    while len(log.segments) < 5:
        append(log, log.log_end_offset % 3, 0, world.clock.now_ms())
    log.update_high_watermark(log.log_end_offset)
    active = log.segments.active.base_offset
    for segment in log.segments:
        segment.set_last_modified(NOW_MS)
    cleaner = cleaner_of(world, slice_bytes=1)
    cleaner.work(1)
    world.clock.advance(2000)
    assert cleaner.delete_old_segments() == 0, "a pass is under way"
    while world.manager.state(log.topic_partition) is not None:
        cleaner.work(1)
    deleted = cleaner.delete_old_segments()
    assert deleted >= 1
    assert log.log_start_offset >= active
    assert cleaner.work(1) is False
    assert world.manager.checkpoints[log.topic_partition] >= active
