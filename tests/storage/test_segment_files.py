"""The files of a segment: created when needed, synced, renamed, closed, removed; and appends to a full disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.storage.segment_files import (
    batch,
    bytes_of,
    full_disk,
    messages,
    offsets,
    offsets_in,
    open_descriptors,
    open_segment,
    put,
    short_writes,
)
from tidelog.config import INT64_MAX, LogConfig
from tidelog.errors import CorruptIndexError, InvalidArgumentError, StorageError
from tidelog.formats.txn_index import AbortedTxn
from tidelog.reader.producer_state import CompletedTxn
from tidelog.storage.segment.log_segment import LogSegment


class TestFiles:
    def test_change_file_suffixes(self, tmp_path: Path) -> None:
        """LogSegmentTest.testChangeFileSuffixes"""
        segment = open_segment(tmp_path, 40)
        log, index, time_index, txn_index = segment.paths
        assert not any(path.exists() for path in (index, time_index))
        segment.change_file_suffixes("", ".deleted")
        assert [path.name for path in segment.paths] == [f"{p.name}.deleted" for p in (log, index, time_index, txn_index)]
        assert all(path.name.endswith(".deleted") for path in segment.paths)
        assert (log.exists(), segment.paths[0].exists()) == (False, True)
        _ = segment.offset_index.entries, segment.time_index.entries
        assert all(path.exists() for path in segment.paths[:3])
        with pytest.raises(InvalidArgumentError):
            segment.change_file_suffixes(".swap", "")
        segment.close()

    def test_renamed_while_it_is_written(self, tmp_path: Path) -> None:
        segment = open_segment(tmp_path, 0, LogConfig(index_interval_bytes=0), suffix=".cleaned")
        put(segment, batch(0, [1]))
        segment.txn_index.append(AbortedTxn(1, 0, 0, 0))
        put(segment, batch(1, [2]))
        segment.change_file_suffixes(".cleaned", ".swap")
        put(segment, batch(2, [3]))
        segment.change_file_suffixes(".swap", "")
        segment.close()
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in segment.paths)
        assert (len(bytes_of(tmp_path, 0, ".index")), len(bytes_of(tmp_path, 0, ".timeindex"))) == (16, 24)

    def test_create_with_init_file_size_append_message(self, tmp_path: Path) -> None:
        """LogSegmentTest.testCreateWithInitFileSizeAppendMessage"""
        segment = open_segment(tmp_path, 40, init_file_size=512 << 20, preallocate=True)
        put(segment, messages(50, "hello", "there"))
        put(segment, messages(60, "alpha", "beta"))
        assert offsets(segment.read(55, 200)) == [60, 61]
        assert segment.log.path.stat().st_size == 512 << 20
        segment.on_become_inactive()
        assert segment.log.path.stat().st_size == segment.size_bytes
        segment.close()

    def test_create_with_init_file_size_clear_shutdown(self, tmp_path: Path) -> None:
        """LogSegmentTest.testCreateWithInitFileSizeClearShutdown"""
        segment = open_segment(tmp_path, 40, init_file_size=512 << 20, preallocate=True)
        put(segment, messages(50, "hello", "there"))
        put(segment, messages(60, "alpha", "beta"))
        assert offsets(segment.read(55, 200)) == [60, 61]
        size = segment.size_bytes
        assert segment.log.path.stat().st_size == 512 << 20
        segment.close()
        assert segment.log.path.stat().st_size == size
        segment = open_segment(tmp_path, 40, file_already_exists=True, init_file_size=512 << 20, preallocate=True)
        segment.resize_indexes()
        assert offsets(segment.read(55, 200)) == [60, 61]
        assert segment.size_bytes == size
        put(segment, messages(62, "gamma"))
        assert segment.read_next_offset() == 63
        segment.close()

    def test_close_adds_the_last_entry(self, tmp_path: Path) -> None:
        """Spec §4.11"""
        segment = open_segment(tmp_path, 0, LogConfig())
        put(segment, batch(0, [5, 9, 7]))
        assert segment.time_index.entries == 0
        segment.close()
        assert bytes_of(tmp_path, 0, ".timeindex") == (9).to_bytes(8, "big") + (2).to_bytes(4, "big")
        assert not (tmp_path / f"{0:020d}.index").exists()  # nobody asked for it

    def test_a_segment_that_nobody_used_stays_closed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        segment = open_segment(tmp_path)
        put(segment, *(batch(i, [i]) for i in range(10)))
        segment.close()
        before = open_descriptors(), {path: path.stat() for path in tmp_path.iterdir()}
        segment = open_segment(tmp_path, file_already_exists=True)
        monkeypatch.setattr(os, "open", lambda *args: pytest.fail("not needed"))
        assert segment.size_bytes == sum(len(batch(i, [i])) for i in range(10))
        segment.close()
        assert (open_descriptors(), {path: path.stat() for path in tmp_path.iterdir()}) == before

    def test_closing_what_was_only_asked_changes_nothing(self, tmp_path: Path) -> None:
        segment = open_segment(tmp_path)
        put(segment, *(batch(i, [i]) for i in range(10)))
        segment.close()
        before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
        segment = open_segment(tmp_path, file_already_exists=True)
        assert (segment.largest_timestamp, segment.read_next_offset(), segment.first_batch_timestamp) == (9, 10, 0)
        assert segment.find_offset_by_timestamp(5, 0) == (5, 5, -1)
        segment.close()
        assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before

    def test_close_gives_everything_back_whatever_fails(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = open_descriptors()
        segment = open_segment(tmp_path, 0, LogConfig(index_interval_bytes=0))
        put(segment, batch(0, [5]), batch(1, [6]))
        full_disk(monkeypatch, room=0, cannot_cut=True)
        with pytest.raises(StorageError):
            segment.close()
        assert open_descriptors() == before

    def test_close_handlers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """When the disk has failed, nothing is trimmed, nothing synced."""
        before = open_descriptors()
        segment = open_segment(tmp_path, init_file_size=4096, preallocate=True)
        put(segment, batch(0, [5]), batch(1, [6]))
        segment.update_txn_index(CompletedTxn(8, 0, 1, is_aborted=True), 1)
        monkeypatch.setattr(os, "fsync", lambda fd: pytest.fail("not wanted"))
        monkeypatch.setattr(os, "ftruncate", lambda fd, length: pytest.fail("not wanted"))
        segment.close_handlers()
        assert open_descriptors() == before
        assert [path.stat().st_size for path in segment.paths] == [4096, 1000, 996, 34]

    def test_close_idle(self, tmp_path: Path) -> None:
        before = open_descriptors()
        segment = open_segment(tmp_path)
        put(segment, *(batch(i, [i]) for i in range(5)))
        segment.update_txn_index(CompletedTxn(8, 0, 1, is_aborted=True), 1)
        assert open_descriptors() == before + 4
        segment.close_idle()
        assert open_descriptors() == before
        put(segment, *(batch(i, [i]) for i in range(5, 10)))
        assert offsets(segment.read(0, 10**6)) == list(range(10))
        segment.close()
        assert segment.offset_index.lookup(9).offset == 9

    def test_flush(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Spec §4.12; UnifiedLogTest.testFlushingEmptyActiveSegments: both indexes are there after it. Empty ones need no sync"""
        synced: list[str] = []
        monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink().suffix))
        segment = open_segment(tmp_path)
        segment.flush()
        assert [path.exists() for path in segment.paths] == [True, True, True, False]
        assert synced == []
        put(segment, *(batch(i, [i]) for i in range(40)))
        segment.flush()
        assert synced == [".log", ".index", ".timeindex"]
        segment.flush()
        assert len(synced) == 3
        segment.update_txn_index(CompletedTxn(8, 0, 1, is_aborted=True), 1)
        put(segment, batch(40, [1]))
        segment.flush()
        assert {".log", ".txnindex"} <= set(synced[3:])
        segment.close()

    def test_flush_of_a_rolled_segment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        synced: list[str] = []
        segment = open_segment(tmp_path)
        put(segment, *(batch(i, [i]) for i in range(10)))
        segment.on_become_inactive()
        segment.close_idle()
        monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink().suffix))
        before = open_descriptors()
        segment.flush()
        assert (synced, open_descriptors()) == ([".log", ".index", ".timeindex"], before)
        segment.close()

    def test_delete_if_exists(self, tmp_path: Path) -> None:
        before = open_descriptors()
        segment = open_segment(tmp_path)
        segment.delete_if_exists()
        segment = open_segment(tmp_path)
        put(segment, *(batch(i, [i]) for i in range(10)))
        segment.update_txn_index(CompletedTxn(8, 0, 1, is_aborted=True), 1)
        segment.delete_if_exists()
        segment.delete_if_exists()
        assert (list(tmp_path.iterdir()), open_descriptors()) == ([], before)

    def test_set_last_modified(self, tmp_path: Path) -> None:
        segment = open_segment(tmp_path)
        segment.set_last_modified(1_600_000_000_123)
        assert segment.last_modified_ms == 1_600_000_000_123
        put(segment, *(batch(i, [i]) for i in range(10)))
        segment.on_become_inactive()
        segment.set_last_modified(1_700_000_000_456)
        assert {path.stat().st_mtime_ns for path in tmp_path.iterdir()} == {1_700_000_000_456_000_000}
        segment.delete_if_exists()
        with pytest.raises(StorageError):
            _ = segment.last_modified_ms

    def test_sanity_check(self, tmp_path: Path) -> None:
        """Spec §2.7: loading looks whether there is an `.index`, and at the transaction index; nothing else."""
        segment = open_segment(tmp_path, 100)
        with pytest.raises(CorruptIndexError, match="has no offset index"):
            segment.sanity_check(time_index_newly_created=False)
        (tmp_path / f"{100:020d}.index").write_bytes(b"nonsense that is no index")
        segment.sanity_check(time_index_newly_created=True)
        assert bytes_of(tmp_path, 100, ".timeindex") == b""
        segment.update_txn_index(CompletedTxn(8, 0, 50, is_aborted=True), 1)
        with pytest.raises(CorruptIndexError):
            segment.sanity_check(time_index_newly_created=False)
        segment.close()


class TestFullDisk:
    @pytest.mark.parametrize("room", [0, 40, 150])
    @pytest.mark.parametrize("file", [".log", ".index", ".timeindex", ""])
    def test_an_append_that_fails_did_not_happen(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, room: int
    ) -> None:
        room = room if file in (".log", "") else room // 10
        segment = open_segment(tmp_path, 0, LogConfig(index_interval_bytes=0, segment_index_bytes=1000))
        for i in range(4):
            put(segment, batch(i, [10 * i]))
        known = self.known(segment)
        before = {path: path.read_bytes() for path in segment.paths[:3]}
        make_room = full_disk(monkeypatch, room=room, only=file)
        with pytest.raises(StorageError, match="No space left on device"):
            put(segment, *(batch(4 + i, [100 + i]) for i in range(3)))
        assert {path: path.read_bytes() for path in segment.paths[:3]} == before
        assert self.known(segment) == known
        assert segment.find_offset_by_timestamp(31, 0) is None
        make_room()
        put(segment, *(batch(4 + i, [35 + i]) for i in range(3)))
        assert segment.find_offset_by_timestamp(31, 0) == (35, 4, -1)
        segment.on_become_inactive()
        assert segment.time_index.last_entry == (37, 6)
        segment.close()
        assert offsets_in(bytes_of(tmp_path, 0, ".log")) == list(range(7))
        assert [len(bytes_of(tmp_path, 0, suffix)) for suffix in (".index", ".timeindex")] == [6 * 8, 6 * 12]

    def known(self, segment: LogSegment) -> tuple[object, ...]:
        return (
            segment.size_bytes,
            segment.max_timestamp_and_offset_so_far,
            segment.bytes_since_last_index_entry,
            segment.first_batch_timestamp,
            segment.offset_index.entries,
            segment.time_index.entries,
            segment.read_next_offset(),
        )

    def test_the_first_append_fails(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        segment = open_segment(tmp_path)
        make_room = full_disk(monkeypatch, room=30, only=".log")
        with pytest.raises(StorageError):
            put(segment, batch(0, [1000]))
        make_room()
        assert (segment.size_bytes, segment.first_batch_timestamp, segment.largest_record_timestamp) == (0, INT64_MAX, None)
        put(segment, batch(0, [5]))
        assert (segment.first_batch_timestamp, segment.largest_record_timestamp) == (5, 5)
        segment.close()

    def test_the_error_says_that_the_log_could_not_be_cut_back(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The index is full, and the log cannot be cut: nothing of the append counts, and the next one cuts it."""
        segment = open_segment(tmp_path, 0, LogConfig(index_interval_bytes=0))
        put(segment, batch(0, [1]))
        real = os.ftruncate
        make_room = full_disk(monkeypatch, room=0, only=".timeindex")

        def only_index(fd: int, length: int) -> None:
            if Path(f"/proc/self/fd/{fd}").readlink().suffix == ".log":
                raise OSError(5, "Input/output error")
            real(fd, length)

        monkeypatch.setattr(os, "ftruncate", only_index)
        with pytest.raises(StorageError, match=r"No space left on device.*; nor could the log be truncated"):
            put(segment, batch(1, [2]))
        make_room()
        assert segment.read_next_offset() == 1
        assert offsets_in(segment.log.path.read_bytes()) == [0, 1]
        put(segment, batch(1, [3]))
        segment.close()
        assert bytes_of(tmp_path, 0, ".log") == batch(0, [1]) + batch(1, [3])
        assert bytes_of(tmp_path, 0, ".timeindex") == (3).to_bytes(8, "big") + (1).to_bytes(4, "big")

    def test_short_writes_go_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        segment = open_segment(tmp_path, 0, LogConfig(index_interval_bytes=0))
        short_writes(monkeypatch, 11)
        put(segment, *(batch(i, [i + 1]) for i in range(10)))
        segment.on_become_inactive()
        assert offsets_in(segment.log.read(0, 10**6)) == list(range(10))
        assert [segment.time_index.entry(slot) for slot in range(9)] == [(i + 2, i + 1) for i in range(9)]
        segment.close()

    def test_interrupted_between_the_log_and_its_indexes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        segment = open_segment(tmp_path, 0, LogConfig(index_interval_bytes=0))
        put(segment, batch(0, [1]))
        known = self.known(segment)

        def interrupted() -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(segment.time_index, "write_entries", interrupted)
            put(segment, batch(1, [2]))
        assert self.known(segment) == known
        put(segment, batch(1, [3]))
        segment.close()
        assert bytes_of(tmp_path, 0, ".log") == batch(0, [1]) + batch(1, [3])

    def test_a_roll_that_fails(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        segment = open_segment(tmp_path)
        put(segment, batch(0, [1]))
        make_room = full_disk(monkeypatch, room=0)
        with pytest.raises(StorageError):
            segment.on_become_inactive()
        make_room()
        segment.on_become_inactive()
        assert segment.time_index.last_entry == (1, 0)
        segment.close()
