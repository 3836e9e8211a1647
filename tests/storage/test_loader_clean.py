"""A clean start: what is read, what stays shut, and what is repaired nonetheless."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.reader.build import open_descriptors
from tests.storage.partition_logs import (
    NOW_MS,
    bases,
    batch,
    config,
    messages,
    offsets,
    open_log,
    snapshots,
    time_entries,
    timed,
)
from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError, StorageError
from tidelog.formats.names import file_name
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.storage.loading import time_index_rebuild
from tidelog.storage.loading.clean_end import find_clean_end
from tidelog.storage.loading.loader import load
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.scheduler import Scheduler

SIZE = len(batch())


def closed(tmp_path: Path, count: int = 30, **properties: int | str | bool) -> Path:
    """A log of `count` records, ten a segment, that was closed; its folder."""
    log = open_log(tmp_path, **{"segment_bytes": 10 * SIZE, "index_interval_bytes": 2 * SIZE, **properties})
    for i in range(count):
        log.append_as_leader(batch(timestamp=NOW_MS + 10 * i), 0)
    log.close()
    return log.directory


def reopened(tmp_path: Path, **options: int | str | bool) -> PartitionLog:
    return open_log(tmp_path, **{"segment_bytes": 10 * SIZE, "index_interval_bytes": 2 * SIZE, **options})


class Opened:
    """How often the files of a folder were opened."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: Counter[str] = Counter()
        original = os.open

        def spy(path: str | Path, *arguments: int, **keywords: int) -> int:
            if Path(path).parent == folder:
                self.names[Path(path).name] += 1
            return original(path, *arguments, **keywords)

        monkeypatch.setattr(os, "open", spy)


class TestNothingThatNobodyAskedFor:
    def test_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The last segment's end, a snapshot, epochs, where they begin, and the id are read, each file once; nothing stays open
        or changes.
        """
        folder = closed(tmp_path)
        before = {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.iterdir()}
        opened = Opened(folder, monkeypatch)
        log = reopened(tmp_path)
        assert (log.log_end_offset, log.recovery_point) == (30, 30)
        assert opened.names == {
            file_name(0, ".log"): 1,
            file_name(20, ".log"): 1,
            file_name(20, ".index"): 1,
            file_name(30, ".snapshot"): 1,
            "leader-epoch-checkpoint": 1,
            "partition.metadata": 1,
        }
        assert open_descriptors(folder) == []
        assert {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.iterdir()} == before
        monkeypatch.undo()
        log.close()
        assert {path: path.stat().st_size for path in folder.iterdir()} == {path: size for path, (size, _) in before.items()}

    def test_the_active_segments_indexes_grow_at_the_first_append(self, tmp_path: Path) -> None:
        folder = closed(tmp_path, 25)
        log = reopened(tmp_path, segment_index_bytes=120)
        assert (folder / file_name(20, ".index")).stat().st_size == 8
        for i in range(25, 30):
            log.append_as_leader(batch(timestamp=NOW_MS + 10 * i), 0)
        assert bases(log) == [0, 10, 20]
        assert (folder / file_name(20, ".index")).stat().st_size == 120
        assert log.segments.active.offset_index.entries == 2
        log.append_as_leader(batch(timestamp=NOW_MS + 300), 0)
        assert bases(log) == [0, 10, 20, 30]
        assert offsets(log) == list(range(31))

    def test_a_segment_without_room_rolls_only_when_it_is_full(self, tmp_path: Path) -> None:
        """Were the trimmed index taken for full, the first append after each start would roll (spec §2.2)."""
        closed(tmp_path, 5)
        log = reopened(tmp_path)
        assert not log.segments.active.offset_index.is_full
        assert not log.segments.active.time_index.is_full
        assert log.segments.active.offset_index.length_bytes == 10 << 20

    def test_a_log_that_was_rolled_and_closed(self, tmp_path: Path) -> None:
        folder = closed(tmp_path, 10)
        log = reopened(tmp_path)
        log.roll()
        log.close()
        log = reopened(tmp_path)
        assert (bases(log), log.log_end_offset) == ([0, 10], 10)
        assert open_descriptors(folder) == []


class TestTheEnd:
    @pytest.mark.parametrize(
        "damage",
        [
            lambda path: path.write_bytes(path.read_bytes() + bytes(10)),
            lambda path: path.write_bytes(path.read_bytes() + bytes(500)),
            lambda path: path.write_bytes(path.read_bytes() + b"\xff" * 500),
            lambda path: path.write_bytes(path.read_bytes() + batch(30)[:-1]),
        ],
    )
    def test_more_than_whole_batches(
        self, tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
    ) -> None:
        """Kafka would append after what is no batch; here the last segment is recovered."""
        folder = closed(tmp_path)
        damage(folder / file_name(20, ".log"))
        log = reopened(tmp_path)
        assert "does not end with a whole batch" in caplog.text
        assert (log.log_end_offset, log.segments.active.size_bytes) == (30, 10 * SIZE)
        log.append_as_leader(batch(), 0)
        assert offsets(log) == list(range(31))

    def test_less(self, tmp_path: Path) -> None:
        folder = closed(tmp_path)
        path = folder / file_name(20, ".log")
        path.write_bytes(path.read_bytes()[: 4 * SIZE + 1])
        log = reopened(tmp_path)
        assert (log.log_end_offset, log.recovery_point, log.segments.active.size_bytes) == (24, 24, 4 * SIZE)
        assert snapshots(folder)[-1] == 24

    @pytest.mark.parametrize(
        "entry",
        [(5, 10**9), (5, 17), (0, 3 * SIZE), (2**31 - 1, 3 * SIZE), (-5, 3 * SIZE), (5, -7)],
    )
    def test_an_index_that_leads_elsewhere(self, tmp_path: Path, entry: tuple[int, int]) -> None:
        folder = closed(tmp_path)
        (folder / file_name(20, ".index")).write_bytes(b"".join(one.to_bytes(4, "big", signed=True) for one in entry))
        log = reopened(tmp_path)
        assert (log.log_end_offset, offsets(log)) == (30, list(range(30)))

    def test_an_index_that_leads_into_a_record(self, tmp_path: Path) -> None:
        """A header's value that is a batch ends where its record does: so a log may seem to end with it."""
        log = open_log(tmp_path, index_interval_bytes=1)
        last = Record(0, NOW_MS, CREATE_TIME, b"key", b"value", (("batch", bytes(batch(offset=1))),))
        for data in (batch(), batch(), batch(), build_batch_v2([last])):
            log.append_as_leader(data, 0)
        inside = log.size_bytes - SIZE
        log.close()
        entries = (1, SIZE, 3, inside)
        (log.directory / file_name(0, ".index")).write_bytes(b"".join(number.to_bytes(4, "big") for number in entries))
        assert reopened(tmp_path).log_end_offset == 4

    def test_an_empty_index(self, tmp_path: Path) -> None:
        folder = closed(tmp_path)
        (folder / file_name(20, ".index")).write_bytes(b"")
        assert reopened(tmp_path).log_end_offset == 30

    def test_an_index_of_a_set_of_batches(self, tmp_path: Path) -> None:
        """Older releases wrote one entry for several batches, the last one's offset and the first one's position."""
        folder = closed(tmp_path)
        (folder / file_name(20, ".index")).write_bytes((8).to_bytes(4, "big") + (6 * SIZE).to_bytes(4, "big"))
        log = reopened(tmp_path)
        end = find_clean_end(log.segments.active)
        assert end is not None and end.offset == 30


class TestMissingTimeIndex:
    @pytest.mark.parametrize("base", [0, 10, 20])
    def test_is_built_from_the_log(self, tmp_path: Path, base: int, caplog: pytest.LogCaptureFixture) -> None:
        """Kafka takes such a segment's file time for its records' from then on; here it is as if nothing was lost."""
        folder = closed(tmp_path)
        path = folder / file_name(base, ".timeindex")
        before = path.read_bytes()
        assert len(before) == 3 * 12
        path.unlink()
        log = reopened(tmp_path)
        assert path.read_bytes() == before
        assert open_descriptors(folder) == []
        assert f"{path} was missing and has been rebuilt from the log: 3 entries" in caplog.text
        found = log.fetch_offset_by_timestamp(NOW_MS + 10 * (base + 7))
        assert found is not None and found.offset == base + 7

    def test_below_the_recovery_point_after_a_crash(self, tmp_path: Path) -> None:
        folder = closed(tmp_path)
        before = (folder / file_name(0, ".timeindex")).read_bytes()
        (folder / file_name(0, ".timeindex")).unlink()
        reopened(tmp_path, clean=False, recovery_point=25)
        assert (folder / file_name(0, ".timeindex")).read_bytes() == before

    @pytest.mark.parametrize("magic", [0, 1])
    def test_without_timestamps_it_stays_empty(self, tmp_path: Path, magic: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """As in Kafka: the file's time counts (KIP-33). It is looked for in the log once, not at each start."""
        version = ("0.9.0", "0.10.2")[magic]
        log = open_log(tmp_path, message_format_version=version)
        for i in range(5):
            log.append_as_follower(messages(i, timestamp=-1, magic=magic))
        log.close()
        path = log.directory / file_name(0, ".timeindex")
        path.unlink()
        log = open_log(tmp_path, message_format_version=version)
        assert (path.stat().st_size, log.segments.active.time_index.entries) == (0, 0)
        modified_ms = log.segments.active.last_modified_ms
        assert log.segments.active.largest_timestamp == modified_ms
        log.close()
        monkeypatch.setattr(time_index_rebuild, "scan_segment", None)
        open_log(tmp_path, message_format_version=version)

    def test_damage_in_the_middle(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """Nobody looks for damage in a segment that was flushed; the index ends before it."""
        folder = closed(tmp_path)
        with (folder / file_name(0, ".log")).open("r+b") as file:
            file.seek(5 * SIZE + 70)
            file.write(b"\xff")
        (folder / file_name(0, ".timeindex")).unlink()
        log = reopened(tmp_path)
        assert log.log_end_offset == 30
        assert f"up to byte {5 * SIZE}: the batch checksum does not match" in caplog.text
        assert time_entries(folder, 0)[-1] == (NOW_MS + 40, 4)

    def test_it_appears_whole(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = closed(tmp_path)
        (folder / file_name(0, ".timeindex")).unlink()
        monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(StorageError, match="No space"):
            reopened(tmp_path)
        monkeypatch.undo()
        assert not (folder / file_name(0, ".timeindex")).exists()
        assert open_descriptors(folder) == []
        reopened(tmp_path)
        assert len(time_entries(folder, 0)) == 3
        assert not list(folder.glob("*.tmp"))


FORMS = {
    "next base, at the roll": lambda entries, base: [*entries[:-1], (entries[-1][0], base + 10)],
    "next offset throughout": lambda entries, base: [(time, offset + 1) for time, offset in entries],
    "file time and next base": lambda entries, base: [(NOW_MS + 10**6, base + 10)],
    "file time and first message": lambda entries, base: [(NOW_MS + 10**6, base)],
}


@pytest.mark.parametrize("form", FORMS)
class TestKip33Entries:
    """Time index entries as KIP-33's text describes them, which no release wrote (spec §16)."""

    @pytest.fixture
    def folder(self, tmp_path: Path, form: str) -> Path:
        folder = closed(tmp_path)
        for base in (0, 10, 20):
            entries = FORMS[form](time_entries(folder, base), base)
            data = b"".join(time.to_bytes(8, "big") + (offset - base).to_bytes(4, "big") for time, offset in entries)
            (folder / file_name(base, ".timeindex")).write_bytes(data)
        return folder

    def test_are_loaded_and_kept(self, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        before = {base: time_entries(folder, base) for base in (0, 10, 20)}
        log = reopened(tmp_path)
        assert not caplog.records
        assert offsets(log) == list(range(30))
        assert [segment.largest_record_timestamp for segment in log.segments] == [before[base][-1][0] for base in before]
        log.close()
        assert {base: time_entries(folder, base) for base in before} == before

    def test_the_log_goes_on(self, folder: Path, tmp_path: Path, form: str) -> None:
        """What is appended after one is indexed by the rules that Kafka has."""
        log = reopened(tmp_path)
        for i in range(30, 60):
            log.append_as_leader(batch(timestamp=NOW_MS + 2 * 10**6 + i), 0)
        log.close()
        assert offsets(reopened(tmp_path)) == list(range(60))
        for base in (30, 40, 50):
            assert [offset for _, offset in time_entries(folder, base)] == [base + 3, base + 6, base + 9]

    def test_recovery_writes_kafkas(self, folder: Path, tmp_path: Path) -> None:
        reopened(tmp_path, clean=False).close()
        for base in (0, 10, 20):
            assert time_entries(folder, base) == [(NOW_MS + 10 * offset, offset) for offset in (base + 3, base + 6, base + 9)]


class TestFolders:
    @pytest.mark.parametrize("is_empty", [False, True])
    def test_one_that_is_going(self, tmp_path: Path, is_empty: bool) -> None:
        """A ``-delete`` folder is not looked into; it gets a segment if it has none (spec §6.2)."""
        folder = closed(tmp_path)
        if is_empty:
            shutil.rmtree(folder)
            folder.mkdir()
        else:
            (folder / file_name(20, ".log")).write_bytes(b"nonsense")
        going = folder.rename(tmp_path / f"log-0.{'0' * 32}-delete")
        clock = ManualClock(NOW_MS)
        log = load(going, config(), clock, Scheduler(clock), had_clean_shutdown=False)
        assert (log.log_start_offset, log.log_end_offset, bases(log)) == (0, 0, [0] if is_empty else [0, 10, 20])
        assert log.topic_partition == ("log", 0)
        log.delete()
        assert not going.exists()

    def test_without_segments(self, tmp_path: Path) -> None:
        """UnifiedLogTest.testLoadPartitionDirWithNoSegmentsShouldNotThrow"""
        log = open_log(tmp_path)
        assert (bases(log), log.log_end_offset) == ([0], 0)

    def test_other_files_are_left_alone(self, tmp_path: Path) -> None:
        folder = closed(tmp_path)
        strangers = [folder / name for name in ("README", "notes.txt", "leader-epoch-checkpoint.tmp")]
        for path in strangers:
            path.touch()
        (folder / "folder.log").mkdir()
        assert offsets(reopened(tmp_path)) == list(range(30))
        assert all(path.exists() for path in strangers)

    def test_bad_name(self, tmp_path: Path) -> None:
        (tmp_path / "nodash").mkdir()
        with pytest.raises(InvalidArgumentError):
            load(tmp_path / "nodash", config(), ManualClock(0), Scheduler(ManualClock(0)), had_clean_shutdown=True)

    def test_absent(self, tmp_path: Path) -> None:
        with pytest.raises(StorageError):
            load(tmp_path / "a-0", config(), ManualClock(0), Scheduler(ManualClock(0)), had_clean_shutdown=True)


class TestErrors:
    """A disk that refuses: the load ends with an error that names the file, and everything is given back."""

    @pytest.fixture
    def refused(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
        original = os.open

        def refuse(suffix: str) -> None:
            def open_or_not(path: str | Path, *arguments: int, **keywords: int) -> int:
                if str(path).endswith(suffix):
                    raise OSError(5, "Input/output error")
                return original(path, *arguments, **keywords)

            monkeypatch.setattr(os, "open", open_or_not)

        yield refuse
        monkeypatch.undo()

    @pytest.mark.parametrize("clean", [False, True])
    @pytest.mark.parametrize("name", [".log", "20.index", ".snapshot", "-checkpoint"])
    def test_io_error(self, tmp_path: Path, refused: Callable[[str], None], name: str, clean: bool) -> None:
        folder = closed(tmp_path)
        refused(name)
        with pytest.raises(StorageError, match="Input/output error") as caught:
            reopened(tmp_path, clean=clean)
        assert caught.value.path is not None and str(caught.value.path).endswith(name)
        assert open_descriptors(folder) == []


def test_timestamps_out_of_order(tmp_path: Path) -> None:
    """What the time index is rebuilt to, is what was appended: entries where the largest grew."""
    log = open_log(tmp_path, index_interval_bytes=1)
    times = [5, 3, 9, 9, 1, 12, 12, 2]
    for time in times:
        log.append_as_leader(timed([NOW_MS + time]), 0)
    log.close()
    before = time_entries(log.directory, 0)
    (log.directory / file_name(0, ".timeindex")).unlink()
    open_log(tmp_path, index_interval_bytes=1)
    assert time_entries(log.directory, 0) == before == [(NOW_MS + 5, 0), (NOW_MS + 9, 2), (NOW_MS + 12, 5)]
