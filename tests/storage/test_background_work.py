"""What the manager does from time to time beside retention: compaction, time maps, statistics."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.fields import check_fields
from tests.storage.managers import QUIET, die, files, fill, managed, started
from tests.storage.partition_logs import NOW_MS, batch, offsets, timed
from tidelog.clock import ManualClock
from tidelog.formats.checkpoints import read_offset_checkpoint
from tidelog.model import TopicPartition
from tidelog.reader import time_map_file
from tidelog.reader.time_map_file import read_time_map, time_map_path
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.records import Record
from tidelog.storage import time_map_writer
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.segment.log_segment import LogSegment
from tidelog.storage.time_map_writer import REST_PER_WORK, TimeMapWriter
from tidelog.storage.topics.topic_statistics import TopicStatistics

CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
DAY_MS = 24 * 3600 * 1000


def append_keys(log: PartitionLog, count: int, keys: int, *, first_ms: int = NOW_MS) -> None:
    for i in range(count):
        log.append_as_leader(batch(timestamp=first_ms + i, key=b"key %d" % (i % keys)), 0)
    log.update_high_watermark(log.log_end_offset)


COMPACTED: dict[str, Any] = {"cleanup.policy": "compact", "segment.bytes": 1000}


class TestCompaction:
    def test_topics_with_the_policy_are_compacted(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        with managed(tmp_path, clock) as manager:
            manager.create_topic("compacted", 2, COMPACTED)
            manager.create_topic("other", 1, {"segment.bytes": 1000})
            for key in manager.partitions():
                append_keys(manager.log(*key), 100, keys=5)
            for _ in range(10):
                clock.advance(15_000)
                manager.tick()
            for partition in range(2):
                log = manager.log("compacted", partition)
                active = log.segments.active.base_offset
                assert offsets(log) == [*range(active - 5, active), *range(active, 100)]
            assert offsets(manager.log("other", 0)) == list(range(100))
            assert read_offset_checkpoint(tmp_path / CLEANER_CHECKPOINT).keys() == {("compacted", 0), ("compacted", 1)}

    def test_not_where_it_is_switched_off(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        with managed(tmp_path, clock, **QUIET) as manager:
            assert manager.cleaner is None
            manager.create_topic("t", 1, COMPACTED)
            append_keys(manager.log("t", 0), 100, keys=5)
            clock.advance(100_000)
            manager.tick()
            assert len(offsets(manager.log("t", 0))) == 100
            manager.delete_topic("t")

    def test_compact_and_delete(self, tmp_path: Path) -> None:
        """Old segments of compacted topics are deleted by the cleaner's round."""
        clock = ManualClock(NOW_MS)
        with managed(tmp_path, clock) as manager:
            properties = {**COMPACTED, "cleanup.policy": "compact,delete", "retention.ms": DAY_MS}
            manager.create_topic("t", 1, properties)
            append_keys(manager.log("t", 0), 100, keys=100)
            clock.advance(2 * DAY_MS)
            assert manager.delete_old_segments() == 0
            for _ in range(5):
                clock.advance(15_000)
                manager.tick()
            assert offsets(manager.log("t", 0)) == []

    def test_a_truncation_ends_a_pass(self, tmp_path: Path) -> None:
        """It would bring back what was cut off."""
        with managed(tmp_path) as manager:
            manager.create_topic("t", 1, COMPACTED)
            log = manager.log("t", 0)
            append_keys(log, 100, keys=50)
            cleaner = manager.cleaner
            assert cleaner is not None
            while not any(name.endswith(".cleaned") for name in files(tmp_path / "t-0")):
                assert cleaner.work(1)
            log.truncate_to(20)
            assert not any(name.endswith(".cleaned") for name in files(tmp_path / "t-0"))
            append_keys(log, 10, keys=1)
            while cleaner.work(1 << 20):
                pass
            active = log.segments.active.base_offset
            assert active > 20
            assert offsets(log) == [*range(1, 20), *range(active - 1, 30)]
            log.truncate_fully_and_start_at(5)
            assert (log.log_start_offset, log.log_end_offset) == (5, 5)
            assert not cleaner.work(1 << 20)

    def test_a_truncation_brings_the_checkpoint_down(self, tmp_path: Path) -> None:
        with managed(tmp_path) as manager:
            manager.create_topic("t", 1, COMPACTED)
            log = manager.log("t", 0)
            append_keys(log, 100, keys=5)
            cleaner = manager.cleaner
            assert cleaner is not None
            cleaner.clean_filthiest_log()
            before = cleaner.manager.checkpoints["t", 0]  # type: ignore[index]
            log.truncate_to(before - 10)
            assert cleaner.manager.checkpoints == {("t", 0): before - 10}

    def test_topic_config_change_stop_cleaning_if_compact_is_removed(self, tmp_path: Path) -> None:
        """LogManagerTest.testTopicConfigChangeStopCleaningIfCompactIsRemoved."""
        with managed(tmp_path) as manager:
            manager.create_topic("t", 1, COMPACTED)
            append_keys(manager.log("t", 0), 100, keys=50)
            cleaner = manager.cleaner
            assert cleaner is not None
            while not any(name.endswith(".cleaned") for name in files(tmp_path / "t-0")):
                assert cleaner.work(1)
            manager.alter_config("t", {"segment.bytes": 1000})
            assert not any(name.endswith(".cleaned") for name in files(tmp_path / "t-0"))
            assert not cleaner.work(1 << 20)
            assert offsets(manager.log("t", 0)) == list(range(100))

    def test_a_topic_that_is_deleted_meanwhile(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        with managed(tmp_path, clock) as manager:
            manager.create_topic("t", 2, COMPACTED)
            for partition in range(2):
                append_keys(manager.log("t", partition), 100, keys=50)
            cleaner = manager.cleaner
            assert cleaner is not None
            cleaner.clean_filthiest_log()
            assert cleaner.work(1)
            manager.delete_topic("t")
            assert read_offset_checkpoint(tmp_path / CLEANER_CHECKPOINT) == {}
            manager.create_topic("t", 1, COMPACTED)
            clock.advance(100_000)
            manager.tick()
            assert cleaner.manager.checkpoints == {}

    def test_the_end_in_the_middle_of_a_pass(self, tmp_path: Path) -> None:
        with managed(tmp_path) as manager:
            manager.create_topic("t", 1, COMPACTED)
            append_keys(manager.log("t", 0), 100, keys=50)
            assert manager.cleaner is not None
            while not any(name.endswith(".cleaned") for name in files(tmp_path / "t-0")):
                assert manager.cleaner.work(1)
        assert not any(name.endswith(".cleaned") for name in files(tmp_path / "t-0"))
        with managed(tmp_path) as manager:
            assert manager.had_clean_shutdown
            assert offsets(manager.log("t", 0)) == list(range(100))


class TestTimeMaps:
    def test_after_a_roll_and_at_the_end(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        with managed(tmp_path, clock) as manager:
            manager.create_topic("t", 1, {"segment.bytes": 1000})
            log = manager.log("t", 0)
            fill(log, 40)
            assert maps(log) == []
            manager.tick()
            bases = log.segments.base_offsets
            assert maps(log) == bases[:-1]
            assert_true(log, end=False)
        assert maps(log) == bases
        assert_true(log)
        found = tidelog.scan(tmp_path, "t", columns=["offset"]).read_all()
        assert found.num_rows == 40

    def test_the_last_segment_is_mapped_further(self, tmp_path: Path) -> None:
        for _ in range(3):
            with managed(tmp_path) as manager:
                if not manager.partitions():
                    manager.create_topic("t", 1)
                log = manager.log("t", 0)
                fill(log, 5)
            assert_true(log)

    def test_not_where_it_is_switched_off(self, tmp_path: Path) -> None:
        with managed(tmp_path, **QUIET) as manager:
            manager.create_topic("t", 1, {"segment.bytes": 1000})
            fill(manager.log("t", 0), 40)
            manager.tick()
        assert maps(manager_log(tmp_path)) == []

    def test_nothing_is_mapped_that_was_only_opened(self, tmp_path: Path) -> None:
        """A backup with a gigabyte in each of its last segments must close quickly."""
        with managed(tmp_path, **QUIET) as manager:
            manager.create_topic("t", 2)
            fill(manager.log("t", 0), 5)
            fill(manager.log("t", 1), 5)
        with managed(tmp_path) as manager:
            fill(manager.log("t", 1), 1)
        assert [len(maps(manager_log(tmp_path, partition))) for partition in range(2)] == [0, 1]

    def test_in_slices(self, tmp_path: Path) -> None:
        """A long segment takes several ticks, and its map is true after each of them."""
        clock = ManualClock(NOW_MS)
        with managed(tmp_path, clock, tidelog_time_map_enable=False) as manager:
            manager.create_topic("t", 1, {"index.interval.bytes": 1000})
            log = manager.log("t", 0)
            fill(log, 300, value=b"x" * 1000)
            finished = log.segments.active
            log.roll()
            writer = TimeMapWriter(manager.scheduler, slice_bytes=100_000)
            writer.add(log, finished)
            covered = []
            while not covered or covered[-1] < finished.size_bytes:
                manager.tick()
                time_map = read_time_map(time_map_path(finished.log.path))
                assert time_map is not None
                covered.append(time_map.covered_bytes)
                assert len(covered) < 10
            assert covered[:2] != [finished.size_bytes] * 2
            assert 100_000 <= covered[0] < 110_000
            assert len(covered) == 4
            assert_true(log, end=False)
            assert manager.tick() == 0

    def test_ahead(self, tmp_path: Path) -> None:
        """Where there are threads, they map whole segments, one after the other; one that goes meanwhile leaves no map."""
        with managed(tmp_path, tidelog_time_map_enable=False) as manager:
            manager.create_topic("t", 1, {"segment.bytes": 1000})
            log = manager.log("t", 0)
            fill(log, 40)
            writer = TimeMapWriter(manager.scheduler, slice_bytes=1)
            manager.tick()
            first, going, third = list(log.segments)[:3]
            for segment in (first, going, third):
                writer.add(log, segment)
            threads: list[tuple[Callable[[], object], Callable[[object], None]]] = []
            made: list[int] = []
            while manager.scheduler.tick(lambda work, done: threads.append((work, done))):
                assert len(threads) == 1
                work, done = threads.pop()
                result = work()
                if len(made) == 1:
                    assert len(maps(log)) == 2
                    log.segments.remove(going.base_offset)
                done(result)
                made.append(len(maps(log)))
            assert made == [1, 1, 2]
            log.segments.add(going)

    def test_threads_rest_by_the_processor_time_that_maps_take(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Not by their number: two hundred short segments are mapped as soon as one long one."""
        clock = ManualClock(NOW_MS)
        spent_s = 0.0
        monkeypatch.setattr(time_map_writer, "thread_time", lambda: spent_s)
        monkeypatch.setattr(time_map_writer, "AT_ONCE_S", 0.5)
        real = time_map_file.write_time_map

        def slow(*args: Any, **kwargs: Any) -> object:
            nonlocal spent_s
            spent_s += 0.125
            return real(*args, **kwargs)

        monkeypatch.setattr(time_map_file, "write_time_map", slow)
        with managed(tmp_path, clock, tidelog_time_map_enable=False) as manager:
            manager.create_topic("t", 1, {"segment.bytes": 200})
            log = manager.log("t", 0)
            fill(log, 30)
            manager.tick()
            writer = TimeMapWriter(manager.scheduler)
            for segment in list(log.segments)[:-1]:
                writer.add(log, segment)
            made = []
            while len(maps(log)) < len(log.segments) - 1:
                while manager.scheduler.tick(lambda work, done: done(work())):
                    pass
                made.append(len(maps(log)))
                clock.advance(500 * REST_PER_WORK - 1)
                manager.scheduler.tick(lambda work, done: done(work()))
                assert len(maps(log)) == made[-1]
                clock.advance(1)
            assert made[:3] == [4, 8, 12]

    def test_files_that_are_gone_are_no_news(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """One segment's file goes while it waits for a thread, another one has gone before its turn comes."""
        with managed(tmp_path, tidelog_time_map_enable=False) as manager:
            manager.create_topic("t", 1, {"segment.bytes": 1000})
            log = manager.log("t", 0)
            fill(log, 40)
            writer = TimeMapWriter(manager.scheduler)
            manager.tick()
            first, second, third = list(log.segments)[:3]
            for segment in (first, second, third):
                writer.add(log, segment)
            log.segments.remove(second.base_offset)
            hidden = first.log.path.with_suffix(".gone")

            def elsewhere(work: Callable[[], object], done: Callable[[object], None]) -> None:
                first.log.path.rename(hidden)
                result = work()
                hidden.rename(first.log.path)
                done(result)

            manager.scheduler.tick(elsewhere)
            manager.tick()
            assert maps(log) == [third.base_offset]
            assert caplog.text == ""
            log.segments.add(second)

    def test_many_short_segments_are_not_done_all_at_once(self, tmp_path: Path) -> None:
        with managed(tmp_path, tidelog_time_map_enable=False) as manager:
            manager.create_topic("t", 1, {"segment.bytes": 200})
            log = manager.log("t", 0)
            fill(log, 30)
            writer = TimeMapWriter(manager.scheduler, slice_bytes=10 << 20)
            for segment in list(log.segments)[:-1]:
                writer.add(log, segment)
            manager.tick()
            assert 5 <= len(maps(log)) <= 12
            manager.tick()
            manager.tick()
            assert len(maps(log)) == len(log.segments) - 1

    def test_the_end_does_not_take_long(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        with managed(tmp_path, tidelog_time_map_enable=False) as manager:
            manager.create_topic("t", 1, {"segment.bytes": 1000})
            log = manager.log("t", 0)
            fill(log, 100)
            writer = TimeMapWriter(manager.scheduler)
            for segment in list(log.segments)[:-1]:
                writer.add(log, segment)
            writer.finish([log], max_bytes=3 << 20)
            assert len(maps(log)) == 3
            assert f"{len(log.segments) - 3} segments have no time map yet" in caplog.text
            assert manager.tick() == len(log.segments) - 1 + 1, "only the flushes of the rolls, and the cleaner's first check"

    def test_they_go_with_their_segments(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        with managed(tmp_path, clock) as manager:
            manager.create_topic("t", 1, {"segment.bytes": 1000, "retention.bytes": 2500})
            log = manager.log("t", 0)
            fill(log, 100)
            manager.tick()
            manager.delete_old_segments()
            assert maps(log) == log.segments.base_offsets[:-1]
            log.truncate_to(log.segments.base_offsets[1] + 2)
            assert maps(log) == log.segments.base_offsets[:1]
            fill(log, 1)
            log.truncate_fully_and_start_at(50)
            assert maps(log) == []
            fill(log, 30)
            manager.tick()
        assert_true(log)

    def test_a_truncated_last_segment_loses_its_map(self, tmp_path: Path) -> None:
        with managed(tmp_path) as manager:
            manager.create_topic("t", 1)
            fill(manager.log("t", 0), 5)
        with managed(tmp_path) as manager:
            log = manager.log("t", 0)
            assert maps(log) == [0]
            log.truncate_to(3)
            assert maps(log) == []

    def test_compacted_segments_have_new_ones(self, tmp_path: Path) -> None:
        with managed(tmp_path) as manager:
            manager.tick()  # The cleaner's first check; the next one is due later.
            manager.create_topic("t", 1, COMPACTED)
            log = manager.log("t", 0)
            append_keys(log, 100, keys=5)
            manager.tick()
            assert len(maps(log)) > 3
            assert manager.cleaner is not None
            manager.cleaner.clean_filthiest_log()
            assert maps(log) == []
            manager.tick()
            with_records = [segment.base_offset for segment in log.segments if segment.size_bytes]
            assert maps(log) == with_records[:-1] != []
            assert_true(log, end=False)

    def test_a_segment_that_goes_before_its_turn(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        with managed(tmp_path) as manager:
            manager.create_topic("t", 2, {"segment.bytes": 500, "retention.bytes": 0})
            for partition in range(2):
                fill(manager.log("t", partition), 20)
            manager.delete_old_segments()
            fill(manager.log("t", 1), 20)
            manager.log("t", 1).go_offline("test", OSError("broken"))
            log = manager.log("t", 0)
            manager.delete_topic("t")
            manager.tick()
            assert [path for path in tmp_path.rglob("*.timemap") if path.parent != log.directory] == []
        assert "no time map" not in caplog.text

    def test_a_full_disk_is_no_more_than_a_notice(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        with managed(tmp_path) as manager:
            manager.create_topic("t", 1, {"segment.bytes": 1000})
            log = manager.log("t", 0)
            fill(log, 15)

            def refuse(path: Path, data: bytes) -> int:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Path, "write_bytes", refuse)
                manager.tick()
            assert "no time map was written: cannot write a time map: No space left" in caplog.text
            assert maps(log) == []
            fill(log, 10)
            assert not log.is_offline

    def test_killed_before_and_recovered(self, tmp_path: Path) -> None:
        """A map of a segment that loses its end is not believed, and extended or made again by the next end."""
        with managed(tmp_path) as manager:
            manager.create_topic("t", 1)
            fill(manager.log("t", 0), 10)
        manager = started(tmp_path)
        fill(manager.log("t", 0), 5)
        die(manager)
        path = tmp_path / "t-0" / "00000000000000000000.log"
        os.truncate(path, path.stat().st_size // 2)
        (tmp_path / "recovery-point-offset-checkpoint").unlink()
        with managed(tmp_path) as manager:
            log = manager.log("t", 0)
            assert log.log_end_offset == 7
            fill(log, 1)
        assert_true(log)


class TestStatistics:
    def test_segments_rolled_by_time_and_of_one_batch(self, tmp_path: Path) -> None:
        """KIP-32's warning: timestamps far apart roll a segment each."""
        with managed(tmp_path) as manager:
            manager.create_topic("wild", 2, {"segment.ms": 1000})
            manager.create_topic("tame", 1, {"segment.bytes": 1000})
            for i in range(6):
                manager.log("wild", 0).append_as_leader(timed([NOW_MS + i * 10_000]), 0)
                manager.log("wild", 1).append_as_leader(timed([NOW_MS + i // 2 * 10_000]), 0)
            fill(manager.log("tame", 0), 50)
            statistics = manager.statistics()
            wild = statistics["wild"]
            check_fields(wild, partitions=2, segments=6 + 3, rolled_by_time=5 + 2, one_batch_segments=5)
            tame = statistics["tame"]
            assert (tame.rolled_by_time, tame.one_batch_segments) == (0, 0)
            assert tame.size_bytes == manager.log("tame", 0).size_bytes
            assert list(statistics) == ["tame", "wild"]

    def test_offline_partitions_are_told(self, tmp_path: Path) -> None:
        with managed(tmp_path) as manager:
            manager.create_topic("t", 3)
            manager.create_topic("u", 1)
        for name in ("t-1", "u-0"):
            (tmp_path / name / "partition.metadata").write_text("nonsense")
        with managed(tmp_path) as manager:
            manager.log("t", 2).go_offline("test", OSError("broken"))
            statistics = manager.statistics()
            assert statistics["t"] == TopicStatistics(3, (1, 2), 2)
            assert statistics["u"] == TopicStatistics(1, (0,))

    def test_what_compaction_leaves_alone_and_where_a_transaction_hangs(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        with managed(tmp_path, clock) as manager:
            manager.create_topic("t", 2)
            assert manager.cleaner is not None
            manager.cleaner.manager.mark_partition_uncleanable(TopicPartition("t", 1), "damaged")
            records = [Record(0, NOW_MS, CREATE_TIME, b"k", b"v")]
            begun = build_batch_v2(records, producer=Producer(7, 0, 0), is_transactional=True)
            manager.log("t", 0).append_as_leader(begun, 0)
            check_fields(manager.statistics()["t"], uncleanable_partitions=1, late_transactions=0)
            clock.advance(DAY_MS)
            check_fields(manager.statistics()["t"], uncleanable_partitions=1, late_transactions=1)

    def test_a_wide_limit_is_told_once_a_topic(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        wide = {"segment.ms": 1000, "message.timestamp.after.max.ms": 5000}
        with managed(tmp_path) as manager:
            manager.create_topic("wide", 5, wide)
            manager.create_topic("wider", 2, {**wide, "message.timestamp.before.max.ms": 9000})
            manager.create_topic("narrow", 5, {"segment.ms": 1000, "message.timestamp.after.max.ms": 1000})
            manager.create_topic("unlimited", 5, {"segment.ms": 1000})
            manager.create_topic("stamped", 5, {**wide, "message.timestamp.type": "LogAppendTime"})
            manager.alter_config("wide", wide)
        with managed(tmp_path):
            pass
        told = [record.getMessage() for record in caplog.records if "can roll a segment" in record.getMessage()]
        assert len(told) == 2
        assert told[0].startswith("topic wide accepts timestamps up to 5000 ms from the current time, more than")
        assert told[1].startswith("topic wider accepts timestamps up to 9000 ms from the current time")


def maps(log: PartitionLog) -> list[int]:
    return sorted(int(path.stem) for path in log.directory.glob("*.timemap"))


def assert_true(log: PartitionLog, *, end: bool = True) -> None:
    """Every segment's map covers it, and says what its records say."""
    segments: list[LogSegment] = list(log.segments)
    for segment in segments if end else segments[:-1]:
        if segment.size_bytes == 0:
            continue
        time_map = read_time_map(time_map_path(segment.log.path))
        assert time_map is not None
        headers = list(segment.batches())
        assert time_map.covered_bytes == segment.size_bytes
        assert time_map.next_offset == headers[-1].next_offset
        assert sum(time_map.records) == sum(header.record_count for header in headers)
        assert max(time_map.max_timestamps) == max(header.max_timestamp for header in headers)


def manager_log(folder: Path, partition: int = 0) -> PartitionLog:
    with LogManager(folder, ManualClock(NOW_MS), properties=QUIET) as manager:
        return manager.log("t", partition)
