"""Opening a partition and a data folder: also while its owner renames files, and after a crash."""

from __future__ import annotations

import random
import shutil
import threading
from pathlib import Path

import pytest

from tests.fields import check_fields
from tests.reader import build
from tests.reader.build import LogBuilder
from tests.reader.golden import GOLDEN
from tidelog.errors import (
    CorruptBatchError,
    DataDirNotFoundError,
    InvalidArgumentError,
    NotFoundError,
    SegmentChangedError,
    UnknownTopicOrPartitionError,
)
from tidelog.formats.checkpoints import write_offset_checkpoint
from tidelog.formats.names import file_name
from tidelog.model import TopicPartition
from tidelog.reader import segment_files
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.reader.segment_time import largest_timestamp

SUFFIXES = (".log", ".index", ".timeindex")


def batches(first: int, last: int) -> list[bytes]:
    return [build.batch(i, [10 * i]) for i in range(first, last)]


def three_segments(tmp_path: Path, name: str = "t-0") -> LogBuilder:
    """Offsets 0..29, ten a segment."""
    builder = LogBuilder(tmp_path / name).append(*batches(0, 10)).roll().append(*batches(10, 20)).roll()
    return builder.append(*batches(20, 30)).close()


def offsets(log: Log) -> list[int]:
    return [offset for header in log.headers(check_crc=True) for offset in range(header.base_offset, header.next_offset)]


class TestLog:
    def test_load_empty_log(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testLoadEmptyLog"""
        log = LogBuilder(tmp_path / "t-0").close().open()
        assert (log.log_start_offset, log.log_end_offset, log.last_stable_offset, offsets(log)) == (0, 0, 0, [])
        (tmp_path / "bare-7").mkdir()
        bare = Log.open(tmp_path / "bare-7")
        check_fields(bare, topic="bare", partition=7, log_end_offset=0, segments=[])
        assert offsets(bare) == []

    def test_read_with_non_sequential_offsets(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testAppendAndReadWithNonSequentialOffsets"""
        ids = [*range(50), *range(50, 200, 7)]
        data = [build.batch(i, [i]) for i in ids]
        log = LogBuilder(tmp_path / "t-0", segment_bytes=5 * len(data[0])).append(*data).close().open()
        for i in range(ids[-1] + 1):
            assert next(log.headers(i)).base_offset == min(one for one in ids if one >= i)

    def test_read_at_log_gap(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testReadAtLogGap: a gap at a segment's end leads to the next segment"""
        builder = LogBuilder(tmp_path / "t-0").append(*batches(0, 3)).roll(10).append(*batches(10, 12)).close()
        assert [header.base_offset for header in builder.open().headers(5)] == [10, 11]

    def test_headers_in_a_range(self, tmp_path: Path) -> None:
        log = three_segments(tmp_path).open()
        for start in range(0, 31, 3):
            for end in range(0, 31, 4):
                assert [header.base_offset for header in log.headers(start, end)] == list(range(start, end))

    def test_log_segments_call_correct(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testLogSegmentsCallCorrect, LogSegmentsTest.testClosestMatchOperations: the floor segment is the
        first"""
        log = three_segments(tmp_path).open()
        assert [segment.base_offset for segment in log.segments_from(13)] == [10, 20]
        assert [segment.base_offset for segment in log.segments_from(10)] == [10, 20]
        assert log.segment_for(9) is log.segments[0] and log.segment_for(1000) is log.segments[2]
        assert LogBuilder(tmp_path / "later-0", start_offset=5).close().open().segment_for(4) is None

    def test_log_start_offset(self, tmp_path: Path) -> None:
        builder = three_segments(tmp_path)
        assert builder.open(log_start_offset=13).log_start_offset == 13
        assert offsets(builder.open(log_start_offset=13)) == list(range(13, 30))
        builder.file(0, ".log").unlink()
        assert builder.open().log_start_offset == builder.open(log_start_offset=4).log_start_offset == 10

    def test_log_end_less_than_start_after_reopen(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """LogLoaderTest.testLogEndLessThanStartAfterReopen, UnifiedLogTest.testLogReinitializeAfterManualDelete: nothing is
        left to
        read, which is reported, and the log continues at its start"""
        log = three_segments(tmp_path).open(log_start_offset=500)
        assert (log.log_start_offset, log.log_end_offset, offsets(log)) == (500, 500, [])
        assert [record.getMessage() for record in caplog.records] == [
            f"{log.directory}: the log start offset checkpoint says 500, after the log's end at 30: no record is left to read"
        ]

    def test_high_watermark_is_kept_within_the_log(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testHighWatermarkMaintenance: clamped to log start and end"""
        builder = three_segments(tmp_path)
        assert builder.open().high_watermark is None
        assert [builder.open(log_start_offset=5, high_watermark=mark).high_watermark for mark in (0, 7, 99)] == [5, 7, 30]
        assert builder.open(high_watermark=7).last_stable_offset == 7
        assert builder.open().last_stable_offset == 30

    def test_corrupt_log(self, tmp_path: Path) -> None:
        """LogLoaderTest.testCorruptLog: garbage after the active segment's data and index; all that is valid is kept. Garbage
        that no crash leaves is an error first, as a reader must not keep silent about it."""
        damaged = 0
        for seed in range(10):
            builder = three_segments(tmp_path, f"t-{seed}")
            chance = random.Random(seed)
            for suffix in (".log", ".index"):
                with builder.file(20, suffix).open("ab") as file:
                    file.write(chance.randbytes(chance.randrange(1, 1000)))
            try:
                assert offsets(builder.open()) == list(range(30))
            except CorruptBatchError as error:
                assert "a crash does not leave such a batch at the end" in str(error)
                assert offsets(builder.open(skip_damaged=True)) == list(range(30))
                damaged += 1
        assert damaged

    @pytest.mark.parametrize("damage", ["deleted", "blank"])
    def test_index_rebuild(self, tmp_path: Path, damage: str) -> None:
        """LogLoaderTest.testIndexRebuild, testCorruptIndexRebuild: without any index every offset and time is found"""
        builder = three_segments(tmp_path)
        for path in [*builder.directory.glob("*.index"), *builder.directory.glob("*.timeindex")]:
            path.unlink() if damage == "deleted" else path.write_bytes(b"  ")
        log = builder.open()
        assert offsets(log) == list(range(30))
        for segment in log.segments:
            assert largest_timestamp(segment).timestamp == 10 * (segment.base_offset + 9)

    def test_bogus_index_segments_are_passed_over(self, tmp_path: Path) -> None:
        """LogLoaderTest.testBogusIndexSegmentsAreRemoved: index files without a log are no segment"""
        builder = three_segments(tmp_path)
        for suffix in (".index", ".timeindex"):
            builder.file(5, suffix).write_bytes(b"")
        assert offsets(builder.open()) == list(range(30))

    def test_open_ignores_obsolete_files(self, tmp_path: Path) -> None:
        """LogLoaderTest.testOpenDeletesObsoleteFiles, its reading half: ``.deleted`` files are not read"""
        builder = three_segments(tmp_path)
        for suffix in SUFFIXES:
            builder.file(0, suffix).rename(f"{builder.file(0, suffix)}.deleted")
        assert offsets(builder.open()) == list(range(10, 30))

    def test_segments_that_overlap_are_told(self, tmp_path: Path) -> None:
        builder = LogBuilder(tmp_path / "t-0").append(*batches(0, 10)).close()
        builder._begin(5)
        builder.append(*batches(5, 20)).close()
        with pytest.raises(Exception, match="too high for its segment"):
            offsets(builder.open())

    def test_not_a_partitions_folder(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidArgumentError):
            Log.open(tmp_path / "nodash")
        with pytest.raises(NotFoundError):
            Log.open(tmp_path / "absent-0")

    def test_relative_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        builder = three_segments(tmp_path)
        monkeypatch.chdir(builder.directory)
        assert (Log.open(".").topic, Log.open(".").partition) == ("t", 0)
        assert offsets(Log.open(".")) == list(range(30))

    def test_opening_reads_nothing(self, tmp_path: Path) -> None:
        log = three_segments(tmp_path).open()
        assert (log.topic, log.log_start_offset, len(log.segments), log.high_watermark) == ("t", 0, 3, None)
        assert sum(segment.bytes_read for segment in log.segments) == 0
        assert build.open_descriptors(tmp_path) == []

    def test_topic_id(self) -> None:
        log = LogDir(GOLDEN / "kafka-3.9.1" / "log").log("v2-lz4-ct", 0)
        assert log.topic_id is not None
        assert log.leader_epochs.entries[0] == (0, 0)

    def test_damaged_epochs_are_told(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        builder = three_segments(tmp_path)
        (builder.directory / "leader-epoch-checkpoint").write_text("nonsense")
        assert builder.open().leader_epochs.entries == []
        assert "leader epochs are unknown" in caplog.text


class TestSwap:
    """A crash of the owner, or its work going on, while compacted segments take their places (spec §6.2, §6.7)."""

    def compacted(self, builder: LogBuilder, ending: str) -> None:
        """Put what compaction made of the first two segments beside them: offsets 0, 5, 10, 15 and 19."""
        other = LogBuilder(builder.directory.parent / "compacted-0")
        other.append(*(build.batch(i, [10 * i]) for i in (0, 5, 10, 15, 19))).close()
        for suffix in SUFFIXES:
            shutil.copy(other.file(0, suffix), f"{builder.file(0, suffix)}{ending}")

    def test_cleaned_files_are_ignored(self, tmp_path: Path) -> None:
        """LogCleanerTest.testRecoveryAfterCrash: a crash that left ``.cleaned`` files keeps the original keys"""
        builder = three_segments(tmp_path)
        self.compacted(builder, ".cleaned")
        assert offsets(builder.open()) == list(range(30))

    def test_swap_above_a_cleaned_is_ignored(self, tmp_path: Path) -> None:
        """LogCleanerTest.testRecoveryAfterCrash: ``.swap`` while the smallest ``.cleaned`` is there keeps the original keys"""
        builder = three_segments(tmp_path)
        self.compacted(builder, ".swap")
        builder.directory.joinpath(file_name(0, ".timeindex") + ".cleaned").write_bytes(b"")
        assert offsets(builder.open()) == list(range(30))

    @pytest.mark.parametrize("old", ["in place", "deleted", "one deleted"])
    def test_swap_stands_for_what_it_covers(self, tmp_path: Path, old: str) -> None:
        """LogCleanerTest.testRecoveryAfterCrash: all ``.swap``, the old files in place or gone, gives the cleaned keys"""
        builder = three_segments(tmp_path)
        self.compacted(builder, ".swap")
        for base in {"in place": (), "deleted": (0, 10), "one deleted": (0,)}[old]:
            for suffix in SUFFIXES:
                builder.file(base, suffix).rename(f"{builder.file(base, suffix)}.deleted")
        log = builder.open()
        assert offsets(log) == [0, 5, 10, 15, 19, *range(20, 30)]
        assert largest_timestamp(log.segments[0]) == (190, 19, "index")
        assert log.segments[0].translate_offset(7) is not None

    def test_swap_that_is_put_into_place_while_it_is_read(self, tmp_path: Path) -> None:
        builder = three_segments(tmp_path)
        self.compacted(builder, ".swap")
        log = builder.open()
        for suffix in SUFFIXES:
            builder.file(10, suffix).rename(f"{builder.file(10, suffix)}.deleted")
            builder.file(0, suffix).unlink()
            Path(f"{builder.file(0, suffix)}.swap").rename(builder.file(0, suffix))
        assert offsets(log) == [0, 5, 10, 15, 19, *range(20, 30)]
        assert log.segments[0].time_index is not None

    def test_only_an_index_is_still_a_swap(self, tmp_path: Path) -> None:
        """LogCleanerTest.testRecoveryAfterCrash: only ``.timeindex.swap`` left gives the cleaned keys"""
        builder = three_segments(tmp_path)
        for suffix in SUFFIXES:
            builder.file(10, suffix).unlink()
        self.compacted(builder, "")
        builder.file(0, ".timeindex").rename(f"{builder.file(0, '.timeindex')}.swap")
        log = builder.open()
        assert offsets(log) == [0, 5, 10, 15, 19, *range(20, 30)]
        assert log.segments[0].time_index is not None and largest_timestamp(log.segments[0]).source == "index"


class TestLiveFolder:
    def test_compaction_after_the_listing(self, tmp_path: Path) -> None:
        """What was listed together is read together, or not at all: never half old and half new."""
        builder = three_segments(tmp_path)
        log, late = builder.open(), builder.open()
        TestSwap().compacted(builder, ".swap")
        for suffix in SUFFIXES:
            for base in (0, 10):
                builder.file(base, suffix).rename(f"{builder.file(base, suffix)}.deleted")
            Path(f"{builder.file(0, suffix)}.swap").rename(builder.file(0, suffix))
        assert offsets(log) == list(range(30))
        for path in builder.directory.glob("*.deleted"):
            path.unlink()
        with pytest.raises(SegmentChangedError):
            offsets(late)
        assert offsets(builder.open()) == [0, 5, 10, 15, 19, *range(20, 30)]

    def test_retention_after_the_listing(self, tmp_path: Path) -> None:
        builder = three_segments(tmp_path)
        log = builder.open()
        for suffix in SUFFIXES:
            builder.file(0, suffix).rename(f"{builder.file(0, suffix)}.deleted")
        assert offsets(log) == list(range(30))
        assert offsets(builder.open()) == list(range(10, 30))

    def test_appends_after_the_end_was_read(self, tmp_path: Path) -> None:
        builder = three_segments(tmp_path)
        log = builder.open()
        assert log.log_end_offset == 30
        with builder.file(20, ".log").open("ab") as file:
            file.write(build.batch(30, [300]))
        assert offsets(log) == list(range(30))
        assert offsets(builder.open()) == list(range(31))

    def test_listing_is_repeated_until_it_holds_still(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A roll between two looks: the second listing is not believed either, the third agrees with it."""
        builder = three_segments(tmp_path)
        scan, calls = segment_files._scan, []

        def scan_and_roll(directory: Path) -> dict[str, segment_files.SegmentFile | None]:
            found = scan(directory)
            calls.append(len(found))
            if len(calls) == 1:
                builder._begin(30)
                builder.append(*batches(30, 33)).close()
            return found

        monkeypatch.setattr(segment_files, "_scan", scan_and_roll)
        assert offsets(builder.open()) == list(range(33))
        assert len(calls) == 3

    def test_a_folder_that_never_holds_still(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        builder = three_segments(tmp_path)
        scan, calls = segment_files._scan, iter(range(10_000))

        def scan_and_touch(directory: Path) -> dict[str, segment_files.SegmentFile | None]:
            builder.file(1000 + next(calls), ".log").write_bytes(b"")
            return scan(directory)

        monkeypatch.setattr(segment_files, "_scan", scan_and_touch)
        with pytest.raises(SegmentChangedError, match=r"changed during .*; read again$"):
            builder.open()

    def test_open_while_the_owner_works(self, tmp_path: Path) -> None:
        """Rolls, retention and compaction in another thread: what is read is one moment's log, without holes or repeats."""
        builder = LogBuilder(tmp_path / "t-0").append(*batches(0, 10)).roll().append(*batches(10, 20))
        builder._finish()
        stop = threading.Event()

        def own() -> None:
            base = 20
            while not stop.is_set() and base < 3000:
                builder._begin(base)
                builder.append(*batches(base, base + 10))
                builder._write(b"", ".index")
                builder._write(b"", ".timeindex")
                # The log appears whole, as one rename: this owner's appends are not what is tested.
                draft = builder.directory / f"draft{base}"
                draft.write_bytes(builder.log)
                draft.rename(builder.file(base, ".log"))
                oldest = base - 50
                for suffix in SUFFIXES:
                    path = builder.file(oldest, suffix)
                    if path.exists():
                        path.rename(f"{path}.deleted")
                base += 10

        owner = threading.Thread(target=own)
        owner.start()
        try:
            for _ in range(60):
                try:
                    with builder.open() as log:
                        got = offsets(log)
                except SegmentChangedError:
                    continue
                assert got == list(range(got[0], got[-1] + 1))
        finally:
            stop.set()
            owner.join()


class TestLogDir:
    def test_topics(self, tmp_path: Path) -> None:
        for name in ("b-1", "b-0", "a.b-c-12"):
            LogBuilder(tmp_path / name).close()
        for name in (
            "a-0.0123456789abcdef-delete",
            "a-1.0123-stray",
            "a-2.0123-future",
            "__cluster_metadata-0",
            "nodash",
            "b-007",
        ):
            LogBuilder(tmp_path / name).close()
        (tmp_path / "remote-log-index-cache").mkdir()
        (tmp_path / "empty-0").mkdir()
        (tmp_path / "file-0").write_text("")
        log_dir = LogDir(tmp_path)
        assert log_dir.topics() == {"a.b-c": [12], "b": [0, 1]}
        assert log_dir.partitions("b") == [0, 1]
        assert log_dir.log("a.b-c", 12).directory == tmp_path / "a.b-c-12"

    def test_checkpoints_are_applied(self, tmp_path: Path) -> None:
        three_segments(tmp_path)
        write_offset_checkpoint(tmp_path / "log-start-offset-checkpoint", {TopicPartition("t", 0): 12})
        write_offset_checkpoint(
            tmp_path / "replication-offset-checkpoint", {TopicPartition("t", 0): 25, TopicPartition("x", 0): 1}
        )
        log = LogDir(tmp_path).log("t", 0)
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (12, 25, 30)

    def test_damaged_checkpoints_count_as_empty(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """LogLoaderTest.testLogRecoveryIsCalledUponBrokerCrash: a checkpoint that cannot be read is treated as empty"""
        three_segments(tmp_path)
        for name in ("log-start-offset-checkpoint", "replication-offset-checkpoint"):
            (tmp_path / name).write_text("7\nwhat\n")
        log_dir = LogDir(tmp_path)
        assert (log_dir.log("t", 0).log_start_offset, log_dir.log("t", 0).high_watermark) == (0, None)
        assert [record.getMessage().count("treated as empty") for record in caplog.records] == [1, 1]

    def test_what_is_no_data_folder(self, tmp_path: Path) -> None:
        builder = three_segments(tmp_path)
        with pytest.raises(DataDirNotFoundError, match="no such folder"):
            LogDir(tmp_path / "absent")
        with pytest.raises(DataDirNotFoundError, match="its parent is the data folder"):
            LogDir(builder.directory)
        with pytest.raises(DataDirNotFoundError):
            LogDir(builder.file(0, ".log"))
        (tmp_path / "void").mkdir()
        with pytest.raises(DataDirNotFoundError):
            LogDir(tmp_path / "void")

    def test_what_it_does_not_hold(self, tmp_path: Path) -> None:
        three_segments(tmp_path)
        log_dir = LogDir(tmp_path)
        with pytest.raises(UnknownTopicOrPartitionError, match="no topic 'x'"):
            log_dir.log("x", 0)
        with pytest.raises(UnknownTopicOrPartitionError, match="only 0"):
            log_dir.log("t", 1)
        shutil.rmtree(tmp_path / "t-0")
        with pytest.raises(UnknownTopicOrPartitionError, match="no longer exists"):
            log_dir.log("t", 0)
