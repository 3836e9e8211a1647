"""Loading after a crash, and after damage: what is rebuilt, what is kept, what is cut."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.storage.partition_logs import (
    NOW_MS,
    bases,
    batch,
    end_txn,
    headers,
    messages,
    offset_entries,
    offsets,
    open_log,
    records,
    snapshots,
    time_entries,
)
from tidelog.clock import ManualClock
from tidelog.config import INT32_MAX
from tidelog.formats.leader_epochs import EpochEntry
from tidelog.formats.names import file_name
from tidelog.formats.time_index import TimestampOffset
from tidelog.records.builder import Producer
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType
from tidelog.storage.loading import log_recovery
from tidelog.storage.loading.loader import RecoveryProgress, load
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.segment.log_segment import LogSegment

SIZE = len(batch())


def fill(log: PartitionLog, count: int, *, first: int = 0, step_ms: int = 10) -> None:
    for i in range(first, first + count):
        log.append_as_leader(batch(timestamp=NOW_MS + step_ms * i, value=b"%05d" % i), 0)


def kill(log: PartitionLog) -> Path:
    """Leave the log as a kill does: nothing is trimmed or closed, and the folder goes on under the same name."""
    log.close_handlers()
    return log.directory


def index_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*index"))


class TestLogRecoversToCorrectOffset:
    """LogLoaderTest.testLogRecoversToCorrectOffset"""

    def test_indexes_and_recovery_point(self, tmp_path: Path) -> None:
        properties = {"segment_bytes": 7 * SIZE, "index_interval_bytes": 3 * SIZE, "segment_index_bytes": 4096}
        log = open_log(tmp_path, **properties)
        fill(log, 100)
        active = log.segments.active
        index = (active.offset_index.entries, active.offset_index.last_offset)
        assert log.log_end_offset == 100
        log.close()
        times = time_entries(log.directory, active.base_offset)
        assert times[-1] == (NOW_MS + 990, 99)

        def check(log: PartitionLog, recovery_point: int) -> None:
            active = log.segments.active
            assert (log.log_end_offset, log.recovery_point) == (100, recovery_point)
            assert (active.offset_index.entries, active.offset_index.last_offset) == index
            assert (active.time_index.entries, active.time_index.last_entry) == (len(times), times[-1])

        log = open_log(tmp_path, clean=False, recovery_point=100, **properties)
        check(log, 100)
        log.close()
        log = open_log(tmp_path, clean=False, recovery_point=10, **properties)
        check(log, 10)
        log.flush()
        check(log, 100)
        log.close()

    def test_a_recovery_point_behind_the_end_is_taken_back(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        fill(log, 5)
        kill(log)
        assert open_log(tmp_path, clean=False, recovery_point=99).recovery_point == 5

    def test_after_a_clean_end_it_is_the_log_end(self, tmp_path: Path) -> None:
        """LogLoaderTest.testCleanShutdownFile"""
        log = open_log(tmp_path, segment_bytes=7 * SIZE)
        fill(log, 100)
        log.close()
        log = open_log(tmp_path, segment_bytes=7 * SIZE, clean=True, recovery_point=3)
        assert (log.log_end_offset, log.recovery_point) == (100, 100)


class TestIndexes:
    @pytest.mark.parametrize(("damage", "clean"), [("missing", False), ("missing", True), ("blank", False)])
    def test_rebuild(self, tmp_path: Path, damage: str, clean: bool) -> None:
        """LogLoaderTest.testIndexRebuild, testCorruptIndexRebuild"""
        properties = {"segment_bytes": 20 * SIZE, "index_interval_bytes": 1}
        log = open_log(tmp_path, **properties)
        fill(log, 200)
        log.close()
        before = {path.name: path.read_bytes() for path in index_files(log.directory)}
        assert len(before) == 20
        for path in index_files(log.directory):
            path.unlink() if damage == "missing" else path.write_bytes(b"  ")
        log = open_log(tmp_path, clean=clean, **properties)
        assert offsets(log) == list(range(200))
        assert all(segment.offset_index.entries == segment.time_index.entries == 19 for segment in log.segments)
        for i in range(200):
            found = log.fetch_offset_by_timestamp(NOW_MS + 10 * i)
            assert found is not None and found.offset == i
        log.close()
        assert {path.name: path.read_bytes() for path in index_files(log.directory)} == before

    def test_rebuild_time_index_for_old_messages(self, tmp_path: Path) -> None:
        """LogLoaderTest.testRebuildTimeIndexForOldMessages"""
        properties = {"segment_bytes": 200, "index_interval_bytes": 1, "message_format_version": "0.9.0"}
        log = open_log(tmp_path, **properties)
        for _ in range(40):
            log.append_as_leader(messages(magic=0), 0)
        log.close()
        for path in log.directory.glob("*.timeindex"):
            path.unlink()
        log = open_log(tmp_path, clean=False, **properties)
        closed = log.segments.values()[:-1]
        assert len(closed) > 3
        for segment in closed:
            assert segment.time_index.entries == 0
            assert segment.time_index.path.stat().st_size == 0

    def test_bogus_index_segments_are_removed(self, tmp_path: Path) -> None:
        """LogLoaderTest.testBogusIndexSegmentsAreRemoved"""
        folder = tmp_path / "log-0"
        folder.mkdir()
        for base in (0, 5):
            for suffix in (".index", ".timeindex"):
                (folder / file_name(base, suffix)).touch()
        log = open_log(tmp_path, segment_bytes=5 * SIZE, segment_index_bytes=1000, index_interval_bytes=1)
        assert bases(log) == [0]
        assert not (folder / file_name(5, ".index")).exists()
        assert not (folder / file_name(5, ".timeindex")).exists()
        assert log.segments.active.offset_index.length_bytes == 1000
        assert log.segments.active.time_index.length_bytes == 996
        fill(log, 10)
        assert offsets(log) == list(range(10))
        assert bases(log) == [0, 5]

    def test_a_broken_txn_index(self, tmp_path: Path) -> None:
        """A transaction index that breaks its format has its segment recovered, whatever the recovery point (spec §6.2)."""
        log = aborted_log(tmp_path)
        log.close()
        path = log.directory / file_name(0, ".txnindex")
        right = path.read_bytes()
        for wrong in (right[:-1], b"\1" + right[1:], right[:34] * 2):
            path.write_bytes(wrong)
            open_log(tmp_path, clean=True).close()
            assert path.read_bytes() == right

    def test_a_missing_txn_index_of_a_flushed_segment(self, tmp_path: Path) -> None:
        """It is there only where something was aborted, so that nobody can miss it (as in Kafka)."""
        log = aborted_log(tmp_path)
        log.close()
        (log.directory / file_name(0, ".txnindex")).unlink()
        log = open_log(tmp_path, clean=True)
        assert log.local.collect_aborted_transactions(0, 100) == []

    def test_zero_tailed_indexes(self, tmp_path: Path) -> None:
        """What a kill leaves of a live segment: indexes in their full length."""
        properties = {"index_interval_bytes": 1, "segment_index_bytes": 240}
        log = open_log(tmp_path, **properties)
        fill(log, 10)
        kill(log)
        assert log.segments.active.offset_index.path.stat().st_size == 240
        log = open_log(tmp_path, clean=False, recovery_point=10, **properties)
        assert log.segments.active.offset_index.entries == 9
        fill(log, 5, first=10)
        log.close()
        assert [entry.offset for entry in offset_entries(log.directory, 0)] == [*range(1, 10), 11, 12, 13, 14]
        assert [entry.offset for entry in time_entries(log.directory, 0)] == [*range(1, 10), 11, 12, 13, 14]

    def test_an_index_of_a_live_segment_after_a_clean_end(self, tmp_path: Path) -> None:
        """A folder copied while it was written to, with the mark of a clean end: the zero tail holds no entries."""
        properties = {"index_interval_bytes": 1, "segment_index_bytes": 240}
        log = open_log(tmp_path, **properties)
        fill(log, 10)
        log.segments.active.write_index_entries()
        kill(log)
        log = open_log(tmp_path, clean=True, **properties)
        assert (log.log_end_offset, log.segments.active.offset_index.entries) == (10, 9)
        fill(log, 5, first=10)
        assert offsets(log) == list(range(15))
        assert bases(log) == [0]


def aborted_log(tmp_path: Path, **properties: int) -> PartitionLog:
    """Two aborted transactions, one of which begins before the other (LogTestUtils' scenario, shortened)."""
    log = open_log(tmp_path, **properties)
    for producer_id, count in ((1, 3), (2, 2)):
        log.append_as_leader(batch(count=count, producer=Producer(producer_id, 0, 0), transactional=True), 0)
    end_txn(log, ControlType.ABORT, 1)
    end_txn(log, ControlType.ABORT, 2)
    return log


class TestTails:
    def test_corrupt_log(self, tmp_path: Path) -> None:
        """LogLoaderTest.testCorruptLog"""
        properties = {"index_interval_bytes": 1, "segment_bytes": 1000 * SIZE}
        for seed in range(10):
            chance = random.Random(seed)
            shutil.rmtree(tmp_path / "log-0", ignore_errors=True)
            log = open_log(tmp_path, **properties)
            count = 50 + chance.randrange(50)
            fill(log, count)
            kept = records(log)
            log.close()
            for suffix in (".index", ".log"):
                with (log.directory / file_name(0, suffix)).open("ab") as file:
                    file.write(chance.randbytes(1 + chance.randrange(1000)))
            log = open_log(tmp_path, clean=False, recovery_point=50, **properties)
            assert log.log_end_offset == count
            assert records(log) == kept
            assert log.segments.active.size_bytes == count * SIZE

    @pytest.mark.parametrize("clean", [False, True])
    def test_a_torn_batch(self, tmp_path: Path, clean: bool) -> None:
        """Cut at every byte of the last batch; the mark of a clean end does not count against what is seen."""
        log = open_log(tmp_path)
        fill(log, 3)
        log.close()
        whole = (log.directory / file_name(0, ".log")).read_bytes()
        for cut in range(2 * SIZE, 3 * SIZE):
            shutil.rmtree(log.directory)
            log = open_log(tmp_path)
            log.close()
            (log.directory / file_name(0, ".log")).write_bytes(whole[:cut])
            log = open_log(tmp_path, clean=clean)
            assert (log.log_end_offset, log.segments.active.size_bytes) == (2, 2 * SIZE)
            fill(log, 1)
            assert offsets(log) == [0, 1, 2]
            log.close()

    @pytest.mark.parametrize("clean", [False, True])
    def test_a_preallocated_log(self, tmp_path: Path, clean: bool) -> None:
        """The zero tail that preallocation leaves goes, as does a batch that was zeroed by a power loss."""
        properties = {"preallocate": True, "segment_bytes": 50 * SIZE, "index_interval_bytes": 1, "segment_index_bytes": 400}
        log = open_log(tmp_path, **properties)
        fill(log, 10)
        path = log.segments.active.log.path
        kill(log)
        assert path.stat().st_size == 50 * SIZE
        log = open_log(tmp_path, clean=clean, recovery_point=10, **properties)
        assert (log.log_end_offset, log.segments.active.size_bytes) == (10, 10 * SIZE)
        fill(log, 1, first=10)
        kill(log)
        with path.open("r+b") as file:
            file.seek(9 * SIZE + 30)
            file.write(bytes(SIZE))
        log = open_log(tmp_path, clean=False, **properties)
        assert (log.log_end_offset, offsets(log)) == (9, list(range(9)))

    def test_what_follows_a_damage_goes(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """A segment that lost bytes ends the log (spec §6.3); what came after is removed later, not at once."""
        clock = ManualClock(NOW_MS)
        log = open_log(tmp_path, clock, segment_bytes=10 * SIZE)
        fill(log, 40)
        kill(log)
        with (log.directory / file_name(10, ".log")).open("r+b") as file:
            file.seek(5 * SIZE + 70)
            file.write(b"\xff")
        log = open_log(tmp_path, clock, segment_bytes=10 * SIZE, clean=False)
        assert bases(log) == [0, 10]
        assert offsets(log) == list(range(15))
        assert "the segment ends at offset 15, and the 2 segments after it are removed" in caplog.text
        assert (log.directory / f"{file_name(20, '.log')}.deleted").exists()
        assert snapshots(log.directory) == [10, 15]
        clock.advance(log.config.file_delete_delay_ms)
        log.scheduler.tick()
        assert not list(log.directory.glob("*.deleted"))
        fill(log, 1)
        assert offsets(log) == list(range(16))

    def test_damage_below_the_recovery_point_is_not_looked_for(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, segment_bytes=10 * SIZE)
        fill(log, 40)
        kill(log)
        with (log.directory / file_name(10, ".log")).open("r+b") as file:
            file.seek(5 * SIZE + 70)
            file.write(b"\xff")
        log = open_log(tmp_path, segment_bytes=10 * SIZE, clean=False, recovery_point=20)
        assert (log.log_end_offset, bases(log)) == (40, [0, 10, 20, 30])

    def test_offsets_that_go_back(self, tmp_path: Path) -> None:
        """Kafka empties a segment whose index would go back (testRecoverSegment…InvalidOffset); here the log ends there."""
        log = open_log(tmp_path)
        fill(log, 5)
        kill(log)
        with (log.directory / file_name(0, ".log")).open("ab") as file:
            file.write(batch(offset=2))
            file.write(batch(offset=5))
        log = open_log(tmp_path, clean=False)
        assert (log.log_end_offset, offsets(log)) == (5, [0, 1, 2, 3, 4])

    @pytest.mark.parametrize("bit", [1 << 3, 1 << 33, 1 << 60])
    @pytest.mark.parametrize("is_last", [True, False])
    def test_a_base_offset_with_a_flipped_bit(self, tmp_path: Path, bit: int, is_last: bool) -> None:
        """No checksum covers it. Kafka empties the segment or gives the log up; here it ends before or after that batch."""
        log = open_log(tmp_path, segment_bytes=8 * SIZE)
        fill(log, 16)
        kill(log)
        with (log.directory / file_name(8 if is_last else 0, ".log")).open("r+b") as file:
            file.seek(2 * SIZE)
            offset = int.from_bytes(file.read(8), "big") ^ bit
            file.seek(2 * SIZE)
            file.write(offset.to_bytes(8, "big"))
        log = open_log(tmp_path, segment_bytes=8 * SIZE, clean=False)
        assert offsets(log) == (list(range(10)) if is_last else [0, 1])
        assert bases(log) == ([0, 8] if is_last else [0])

    def test_the_last_batch_with_an_offset_out_of_reach(self, tmp_path: Path) -> None:
        """Nothing confirms it: in the last segment of any release such a batch would have begun a new one."""
        log = open_log(tmp_path)
        fill(log, 5)
        kill(log)
        with (log.directory / file_name(0, ".log")).open("ab") as file:
            file.write(batch(offset=2**40))
        assert open_log(tmp_path, clean=False).log_end_offset == 5

    def test_nothing_is_left(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        fill(log, 5)
        kill(log)
        (log.directory / file_name(0, ".log")).write_bytes(b"\xff" * 1000)
        log = open_log(tmp_path, clean=False)
        assert (log.log_start_offset, log.log_end_offset, bases(log)) == (0, 0, [0])
        fill(log, 2)
        assert offsets(log) == [0, 1]


class TestRecoverOnly:
    def test_with_an_empty_active_segment(self, tmp_path: Path) -> None:
        """LogLoaderTest.testRecoverWithEmptyActiveSegment"""
        log = open_log(tmp_path, segment_bytes=1 << 20)
        fill(log, 10)
        log.roll()
        kill(log)
        assert not (log.directory / file_name(10, ".index")).exists()
        log = open_log(tmp_path, clean=False, recovery_point=10)
        assert (log.log_end_offset, bases(log), log.segments.active.size_bytes) == (10, [0, 10], 0)
        fill(log, 1)
        assert offsets(log) == list(range(11))
        assert (log.directory / file_name(10, ".timeindex")).exists() or log.segments.active.time_index.entries == 0

    def test_only_the_last_segment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """LogLoaderTest.testRecoverOnlyLastSegment"""
        recovered = spy_on_recovery(monkeypatch)
        log = transactional_log(tmp_path)
        last = bases(log)[-1]
        aborted = log.local.collect_aborted_transactions(0, 200)
        kill(log)
        log = transactional_log(tmp_path, recovery_point=log.log_end_offset)
        assert recovered == [last]
        assert log.local.collect_aborted_transactions(0, 200) == aborted

    def test_the_last_segment_without_snapshots(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """LogLoaderTest.testRecoverLastSegmentWithNoSnapshots"""
        log = transactional_log(tmp_path)
        last = bases(log)[-1]
        aborted = log.local.collect_aborted_transactions(0, 200)
        kill(log)
        for path in log.directory.glob("*.snapshot"):
            path.unlink()
        recovered = spy_on_recovery(monkeypatch)
        log = transactional_log(tmp_path, recovery_point=log.log_end_offset)
        assert recovered == [last]
        assert log.local.collect_aborted_transactions(0, 200) == aborted
        assert log.producer_state.last_entry(3) is not None

    def test_full_transaction_index(self, tmp_path: Path) -> None:
        """LogLoaderTest.testFullTransactionIndexRecovery"""
        log = transactional_log(tmp_path)
        aborted = log.local.collect_aborted_transactions(0, 200)
        assert [txn[:4] for txn in aborted] == [(1, 0, 29, 8), (2, 8, 74, 36)]
        kill(log)
        for path in [*index_files(log.directory), *log.directory.glob("*.snapshot")]:
            path.unlink()
        log = transactional_log(tmp_path, recovery_point=0)
        assert log.local.collect_aborted_transactions(0, 200) == aborted
        assert log.last_stable_offset == log.high_watermark

    def test_progress(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, segment_bytes=10 * SIZE)
        fill(log, 40)
        kill(log)
        told: list[RecoveryProgress] = []
        log = load(
            log.directory, log.config, log.clock, log.scheduler, had_clean_shutdown=False, recovery_point=15, progress=told.append
        )
        assert told[0] == RecoveryProgress(log.directory, segments_done=0, segments=3, bytes_done=0, bytes=30 * SIZE)
        assert told[-1] == RecoveryProgress(log.directory, segments_done=3, segments=3, bytes_done=30 * SIZE, bytes=30 * SIZE)
        assert [one.bytes_done for one in told] == sorted(one.bytes_done for one in told)
        kill(log)
        told.clear()
        load(log.directory, log.config, log.clock, log.scheduler, had_clean_shutdown=True, progress=told.append)
        assert not told


def spy_on_recovery(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    recovered: list[int] = []
    recover = log_recovery.recover_segment

    def spy(segment: LogSegment, *arguments: object, **keywords: object) -> int:
        recovered.append(segment.base_offset)
        return recover(segment, *arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(log_recovery, "recover_segment", spy)
    return recovered


def transactional_log(tmp_path: Path, recovery_point: int | None = None) -> PartitionLog:
    """UnifiedLogTest's four transactions over several segments; with a recovery point it is opened again."""
    properties = {"segment_bytes": 128 * 5}
    if recovery_point is not None:
        return open_log(tmp_path, clean=False, recovery_point=recovery_point, **properties)
    log = open_log(tmp_path, **properties)
    sequences: dict[int, int] = {}

    def append(producer_id: int, count: int) -> None:
        sequence = sequences.get(producer_id, 0)
        sequences[producer_id] = sequence + count
        one = batch(count=count, producer=Producer(producer_id, 0, sequence), transactional=True, value=None, key=b"k")
        log.append_as_leader(one, 0)

    def plain(count: int) -> None:
        log.append_as_leader(batch(count=count, value=None), 0)

    append(1, 5)  # 0-4
    plain(3)  # 5-7
    append(2, 10)  # 8-17: begins while producer 1 is open
    append(1, 7)  # 18-24
    plain(4)  # 25-28
    end_txn(log, ControlType.ABORT, 1)  # 29
    append(2, 5)  # 30-34
    plain(1)  # 35
    append(3, 20)  # 36-55
    append(2, 15)  # 56-70
    plain(3)  # 71-73
    end_txn(log, ControlType.ABORT, 2)  # 74
    append(3, 5)  # 75-79
    end_txn(log, ControlType.COMMIT, 3)  # 80
    append(4, 5)  # 81-85
    end_txn(log, ControlType.COMMIT, 4)  # 86
    assert log.log_end_offset == 87
    return log


class TestOverCompacted:
    """Gaps wider than an int32 (LogLoaderTest.testOverCompactedLogRecovery…)."""

    @pytest.mark.parametrize("records_each", [1, 3])
    def test_v2(self, tmp_path: Path, records_each: int) -> None:
        """LogLoaderTest.testOverCompactedLogRecovery, testOverCompactedLogRecoveryMultiRecord"""
        log = open_log(tmp_path, index_interval_bytes=1)
        first, second = 0, INT32_MAX + 2
        for offset in (first, second, second + 10, second + 20):
            log.append_as_follower(batch(offset, count=records_each))
        assert bases(log) == [0, second]
        assert snapshots(log.directory) == [second]
        kill(log)
        log = open_log(tmp_path, clean=False, index_interval_bytes=1)
        assert bases(log) == [0, second]
        assert [header.base_offset for header in headers(log)] == [0, second, second + 10, second + 20]
        assert len(list(log.directory.glob("*.index"))) == 2

    def test_multi_record_v1(self, tmp_path: Path) -> None:
        """LogLoaderTest.testOverCompactedLogRecoveryMultiRecordV1"""
        log = open_log(tmp_path, index_interval_bytes=1, message_format_version="0.10.2")
        for offset in (0, INT32_MAX + 2, INT32_MAX + 4):
            log.append_as_follower(messages(offset, count=2, codec=Codec.GZIP))
        assert bases(log) == [0, 3, INT32_MAX + 4]
        kill(log)
        log = open_log(tmp_path, clean=False, index_interval_bytes=1, message_format_version="0.10.2")
        assert bases(log) == [0, 3, INT32_MAX + 4]
        assert [header.last_offset for header in headers(log)] == [1, INT32_MAX + 3, INT32_MAX + 5]
        for segment in log.segments:
            assert segment.offset_index.path.exists()


class TestStartAndEnd:
    def test_reopen_then_truncate(self, tmp_path: Path) -> None:
        """LogLoaderTest.testReopenThenTruncate"""
        properties = {"segment_bytes": 5 * SIZE, "segment_index_bytes": 1000, "index_interval_bytes": 10000}
        log = open_log(tmp_path, **properties)
        fill(log, 100)
        log.close()
        log = open_log(tmp_path, clean=False, **properties)
        log.truncate_to(3)
        assert (bases(log), log.log_end_offset) == ([0], 3)

    @pytest.mark.parametrize("clean", [False, True])
    def test_log_end_less_than_start(self, tmp_path: Path, clean: bool) -> None:
        """LogLoaderTest.testLogEndLessThanStartAfterReopen"""
        log = open_log(tmp_path, segment_bytes=SIZE)
        log.maybe_assign_epoch_start_offset(3, 0)
        for i in range(6):
            log.append_as_leader(batch(value=b"%05d" % i), 3)
        assert bases(log) == [0, 1, 2, 3, 4, 5]
        log.update_high_watermark(6)
        log.maybe_increment_log_start_offset(4)
        log.close()
        damaged = log.directory / file_name(1, ".log")
        damaged.write_bytes(b"\xff" * SIZE)
        if clean:
            for base in (2, 3, 4, 5):
                (log.directory / file_name(base, ".log")).unlink()
        log = open_log(tmp_path, segment_bytes=SIZE, clean=clean, recovery_point=0, log_start_offset=4)
        assert (bases(log), log.log_start_offset, log.log_end_offset, log.recovery_point) == ([4], 4, 4, 4)
        assert log.leader_epochs.entries == ()
        assert log.segments.active.offset_index.entries == log.segments.active.time_index.entries == 0
        log.append_as_leader(batch(), 3)
        assert offsets(log) == [4]

    def test_log_start_inside_a_segment(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        fill(log, 10)
        log.close()
        log = open_log(tmp_path, log_start_offset=4)
        assert (log.log_start_offset, log.high_watermark, offsets(log)) == (4, 4, [4, 5, 6, 7, 8, 9])

    def test_log_start_below_the_first_segment(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, segment_bytes=5 * SIZE)
        fill(log, 10)
        log.close()
        for path in log.directory.glob(f"{file_name(0, '')}.*"):
            path.unlink()
        log = open_log(tmp_path, segment_bytes=5 * SIZE, log_start_offset=2)
        assert (log.log_start_offset, offsets(log)) == (5, [5, 6, 7, 8, 9])

    def test_an_empty_folder(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, log_start_offset=7, clean=False)
        assert (bases(log), log.log_start_offset, log.log_end_offset) == ([7], 7, 7)
        fill(log, 2)
        assert offsets(log) == [7, 8]


class TestLeaderEpochs:
    def test_recovers_for_leader_epoch(self, tmp_path: Path) -> None:
        """LogLoaderTest.testLogRecoversForLeaderEpoch"""
        log = open_log(tmp_path)
        for epoch, offset in ((1, 0), (2, 1), (2, 2), (5, 3)):
            log.append_as_follower(batch(offset, leader_epoch=epoch))
        expected = (EpochEntry(1, 0), EpochEntry(2, 1), EpochEntry(5, 3))
        assert log.leader_epochs.entries == expected
        kill(log)
        (log.directory / "leader-epoch-checkpoint").unlink()
        assert open_log(tmp_path, clean=False).leader_epochs.entries == expected

    @pytest.mark.parametrize("clean", [False, True])
    def test_a_damaged_checkpoint(self, tmp_path: Path, clean: bool) -> None:
        """Kafka gives the partition up; the batches say the same."""
        log = open_log(tmp_path, segment_bytes=2 * SIZE)
        for epoch, offset in ((1, 0), (2, 1), (2, 2), (5, 3)):
            log.append_as_follower(batch(offset, leader_epoch=epoch))
        log.close()
        (log.directory / "leader-epoch-checkpoint").write_text("nonsense\n")
        log = open_log(tmp_path, segment_bytes=2 * SIZE, clean=clean, recovery_point=4)
        assert log.leader_epochs.entries == (EpochEntry(1, 0), EpochEntry(2, 1), EpochEntry(5, 3))

    def test_cut_to_the_log(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        for epoch, offset in ((1, 0), (2, 1), (5, 2)):
            log.append_as_follower(batch(offset, leader_epoch=epoch))
        kill(log)
        path = log.directory / file_name(0, ".log")
        path.write_bytes(path.read_bytes()[:-1])
        log = open_log(tmp_path, clean=False)
        assert log.leader_epochs.entries == (EpochEntry(1, 0), EpochEntry(2, 1))
        kill(log)
        log = open_log(tmp_path, clean=False, log_start_offset=2)
        assert log.leader_epochs.entries == (EpochEntry(2, 2),)

    def test_cleared_after_a_downgrade(self, tmp_path: Path) -> None:
        """LogLoaderTest.testLeaderEpochCacheClearedAfterStaticMessageFormatDowngrade"""
        log = open_log(tmp_path)
        log.append_as_leader(batch(), 5)
        assert log.leader_epochs.latest_epoch == 5
        log.close()
        log = open_log(tmp_path, clean=False, message_format_version="0.10.2")
        assert log.leader_epochs.is_empty
        assert not (log.directory / "leader-epoch-checkpoint").exists()
        log.close()
        log = open_log(tmp_path, clean=False)
        log.append_as_leader(batch(), 5)
        assert log.leader_epochs.latest_epoch == 5


def test_time_index_entries_are_those_of_before(tmp_path: Path) -> None:
    """A recovered segment has the same entries as one that was appended to."""
    log = open_log(tmp_path, index_interval_bytes=2 * SIZE)
    chance = random.Random(1)
    for _ in range(50):
        log.append_as_leader(batch(timestamp=NOW_MS + chance.randrange(1000)), 0)
    log.close()
    before = time_entries(log.directory, 0)
    assert before == sorted(before) and len(before) > 2
    open_log(tmp_path, index_interval_bytes=2 * SIZE, clean=False).close()
    assert time_entries(log.directory, 0) == before
    assert before[-1] == max(
        (TimestampOffset(header.max_timestamp, header.last_offset) for header in headers(log)),
        key=lambda entry: (entry.timestamp, -entry.offset),
    )
