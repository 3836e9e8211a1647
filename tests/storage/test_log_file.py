"""The `.log` as a file: FileRecordsTest, and what happens when the disk is full."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.storage.segment_files import batch, full_disk, log_file, messages, offsets_in, open_descriptors, short_writes
from tidelog.errors import CorruptBatchError, InvalidArgumentError, StorageError
from tidelog.storage.segment.log_file import LogFile
from tidelog.storage.segment.log_file_reader import MIN_MAPPED_BYTES

INT32_MAX = 2**31 - 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000000.log"


SET = (messages(0, "abcd"), messages(1, "efgh"), messages(2, "ijkl"))


@pytest.fixture
def log(path: Path) -> LogFile:
    return log_file(path, *SET)


class TestReading:
    def test_file_size(self, log: LogFile, path: Path) -> None:
        """FileRecordsTest.testFileSize"""
        for i in range(3, 23):
            log.append(messages(i, "abcd"))
            assert log.size_bytes == path.stat().st_size
        log.close()

    def test_iteration_over_partial_and_truncation(self, path: Path) -> None:
        """FileRecordsTest.testIterationOverPartialAndTruncation: whatever stands after the last message is skipped."""
        for junk in (0, 4, 5, 8, 17):
            log = log_file(path, *SET, b"\x01" * junk)
            assert [header.last_offset for header in log.batches()] == [0, 1, 2]
            log.delete_if_exists()

    def test_a_partial_batch_at_the_end(self, path: Path) -> None:
        whole = messages(3, "mnop")
        for cut in range(len(whole)):
            log = log_file(path, *SET, whole[:cut])
            assert [header.last_offset for header in log.batches()] == [0, 1, 2]
            assert log.first_batch(sum(map(len, SET))) is None
            log.delete_if_exists()

    def test_iteration_does_not_change_position(self, log: LogFile) -> None:
        """FileRecordsTest.testIterationDoesntChangePosition: what is appended after a walk stands at the end."""
        assert [header.last_offset for header in log.batches()] == [0, 1, 2]
        log.append(messages(3, "mnop"))
        assert [header.last_offset for header in log.batches()] == [0, 1, 2, 3]
        log.close()

    def test_read(self, log: LogFile, path: Path) -> None:
        """FileRecordsTest.testRead: a slice from a batch on holds what follows, as far as it goes"""
        data = b"".join(SET)
        assert log.read(0, log.size_bytes) == data
        assert log.read(len(SET[0]), log.size_bytes) == data[len(SET[0]) :]
        assert log.read(len(SET[0]), len(SET[1])) == SET[1]
        assert log.read(log.size_bytes, 10) == b""
        buffer = bytearray(len(data) + 5)
        assert log.read_into(0, memoryview(buffer)) == len(data)
        assert bytes(buffer) == data + bytes(5)
        assert log.read_into(len(data), memoryview(buffer)) == 0
        log.close()

    def test_out_of_range_slice(self, log: LogFile) -> None:
        """FileRecordsTest.testOutOfRangeSlice"""
        for position, length in ((log.size_bytes + 1, 15), (-1, 15), (0, -1)):
            with pytest.raises(InvalidArgumentError):
                log.read(position, length)
        log.close()

    def test_slice_size_limit_with_concurrent_write(self, log: LogFile) -> None:
        """FileRecordsTest.testSliceSizeLimitWithConcurrentWrite: a walk ends where the log ended when it began."""
        walk = log.batches()
        found = [next(walk).last_offset]
        log.append(messages(3, "mnop"))
        assert found + [header.last_offset for header in walk] == [0, 1, 2]
        log.close()

    def test_search(self, path: Path) -> None:
        """FileRecordsTest.testSearch: batches with their positions and sizes, a large one among them"""
        parts = [messages(0, "a"), messages(50, "x" * 4000), messages(51, "b"), messages(100, "y" * 600_000), messages(101, "c")]
        log = log_file(path, *parts)
        positions = [sum(map(len, parts[:i])) for i in range(5)]
        expected = list(zip([0, 50, 51, 100, 101], positions, map(len, parts), strict=True))
        for start in range(5):
            found = [(header.last_offset, header.position, header.size) for header in log.batches(positions[start])]
            assert found == expected[start:]
        log.close()

    def test_iterator_with_limits(self, log: LogFile) -> None:
        """FileRecordsTest.testIteratorWithLimits: a limit inside a batch leaves it out"""
        sizes = [len(part) for part in SET]
        for end, expected in ((0, []), (sizes[0] - 1, []), (sizes[0], [0]), (sum(sizes) - 1, [0, 1]), (10**6, [0, 1, 2])):
            assert [header.last_offset for header in log.batches(0, end)] == expected
        log.close()

    def test_bytes_length_of_write_to(self, log: LogFile, path: Path) -> None:
        """FileRecordsTest.testBytesLengthOfWriteTo: a read gives as many bytes as are asked for, from where it is asked to"""
        data = path.read_bytes()
        assert log.read(5, 13) == data[5:18]
        log.close()

    def test_a_header_that_breaks_its_format(self, path: Path) -> None:
        """A length below 14 ends Kafka's walk with CorruptRecordException (spec §4.15), the zeros of an unclean end as well."""
        log = log_file(path, *SET, bytes(100))
        walk = log.batches()
        assert [next(walk).last_offset for _ in range(3)] == [0, 1, 2]
        with pytest.raises(CorruptBatchError):
            next(walk)
        with pytest.raises(CorruptBatchError):
            log.first_batch(sum(map(len, SET)))
        log.close()

    def test_shorter_than_written(self, log: LogFile, path: Path) -> None:
        os.truncate(path, 10)
        for read in (lambda: log.read(0, 50), lambda: log.read_into(0, memoryview(bytearray(50)))):
            with pytest.raises(StorageError, match="shorter than what was written"):
                read()
        log.close_handlers()

    def test_a_batch_that_is_cut_off(self, log: LogFile) -> None:
        last = list(log.batches())[-1]
        assert log.read_batch(last) == SET[2]
        log.truncate_to(log.size_bytes - 1)
        with pytest.raises(CorruptBatchError):
            log.read_batch(last)
        log.close()


class TestSize:
    def test_append_protects_from_overflow(self, path: Path) -> None:
        """FileRecordsTest.testAppendProtectsFromOverflow"""
        path.touch()
        os.truncate(path, INT32_MAX - 4)
        log = LogFile.open(path, file_already_exists=True)
        with pytest.raises(InvalidArgumentError):
            log.append(bytes(5))
        assert log.size_bytes == INT32_MAX - 4

    def test_open_oversize_file(self, path: Path) -> None:
        """FileRecordsTest.testOpenOversizeFile"""
        path.touch()
        os.truncate(path, INT32_MAX + 5)
        for exists in (True, False):
            with pytest.raises(InvalidArgumentError):
                LogFile.open(path, file_already_exists=exists)

    def test_truncate(self, log: LogFile, path: Path) -> None:
        """FileRecordsTest.testTruncate"""
        second = list(log.batches())[1]
        assert log.truncate_to(second.position) == len(SET[1]) + len(SET[2])
        assert offsets_in(path.read_bytes()) == [0]
        assert log.size_bytes == second.position == path.stat().st_size
        log.append(SET[1])
        assert offsets_in(path.read_bytes()) == [0, 1]
        log.close()

    def test_truncate_not_called_if_size_is_same_as_target_size(self, log: LogFile, monkeypatch: pytest.MonkeyPatch) -> None:
        """FileRecordsTest.testTruncateNotCalledIfSizeIsSameAsTargetSize"""
        monkeypatch.setattr(os, "ftruncate", lambda fd, length: pytest.fail("not needed"))
        assert log.truncate_to(log.size_bytes) == 0
        log.trim()
        log.close()

    def test_truncate_not_called_if_size_is_bigger_than_target_size(self, log: LogFile, path: Path) -> None:
        """FileRecordsTest.testTruncateNotCalledIfSizeIsBiggerThanTargetSize"""
        size = log.size_bytes
        for target in (size + 1, -1):
            with pytest.raises(InvalidArgumentError):
                log.truncate_to(target)
        assert log.size_bytes == size == path.stat().st_size
        log.close()

    def test_truncate_if_size_is_different_to_target_size(self, log: LogFile, path: Path) -> None:
        """FileRecordsTest.testTruncateIfSizeIsDifferentToTargetSize"""
        assert log.truncate_to(23) == sum(map(len, SET)) - 23
        assert log.size_bytes == 23 == path.stat().st_size
        log.close()

    def test_a_disk_that_will_not_truncate(self, log: LogFile, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        size = log.size_bytes
        make_room = full_disk(monkeypatch, room=0, cannot_cut=True)
        with pytest.raises(StorageError, match="truncate"):
            log.truncate_to(5)
        make_room()
        assert log.size_bytes == size == path.stat().st_size
        log.close()

    def test_preallocate_true(self, path: Path) -> None:
        """FileRecordsTest.testPreallocateTrue"""
        log = LogFile.open(path, init_file_size=1024 * 1024, preallocate=True)
        assert log.size_bytes == 0
        assert path.stat().st_size == 1024 * 1024
        assert list(log.batches()) == []
        log.close()

    def test_preallocate_false(self, path: Path) -> None:
        """FileRecordsTest.testPreallocateFalse"""
        log = LogFile.open(path, init_file_size=1024 * 1024, preallocate=False)
        assert log.size_bytes == 0
        assert path.stat().st_size == 0
        log.close()

    def test_preallocate_clear_shutdown(self, path: Path) -> None:
        """FileRecordsTest.testPreallocateClearShutdown"""
        log = LogFile.open(path, init_file_size=1024 * 1024, preallocate=True)
        for part in SET:
            log.append(part)
        assert path.stat().st_size == 1024 * 1024
        assert offsets_in(log.read(0, 10**6)) == [0, 1, 2]
        log.close()
        log = LogFile.open(path, file_already_exists=True, init_file_size=1024 * 1024, preallocate=True)
        assert log.size_bytes == path.stat().st_size == sum(map(len, SET))

    def test_preallocated_and_not_closed(self, path: Path) -> None:
        """What an unclean end leaves counts in its full length; recovery cuts it (spec §4.15)."""
        log = LogFile.open(path, init_file_size=4096, preallocate=True)
        log.append(SET[0])
        log.close_handlers()
        assert LogFile.open(path, file_already_exists=True, preallocate=True).size_bytes == 4096

    def test_a_file_that_is_there_although_it_should_be_new(self, path: Path) -> None:
        path.write_bytes(SET[0])
        log = LogFile.open(path)
        log.append(SET[1])
        assert path.read_bytes() == SET[0] + SET[1]
        log.close()

    def test_a_file_that_is_not_there_although_it_should_be(self, path: Path) -> None:
        LogFile.open(path, file_already_exists=True).close()
        assert path.read_bytes() == b""


class TestDescriptors:
    def test_an_existing_file_is_opened_when_needed(self, path: Path) -> None:
        log_file(path, *SET).close()
        before = open_descriptors()
        log = LogFile.open(path, file_already_exists=True)
        assert (log.size_bytes, log.is_open) == (sum(map(len, SET)), False)
        assert log.modified_ms == path.stat().st_mtime_ns // 1_000_000
        assert open_descriptors() == before
        log.read(0, 1)
        assert (log.is_open, open_descriptors()) == (True, before + 1)
        log.release()
        assert open_descriptors() == before
        log.append(messages(3, "mnop"))
        assert log.is_open
        log.close()
        assert open_descriptors() == before
        assert offsets_in(path.read_bytes()) == [0, 1, 2, 3]

    def test_closing_what_was_not_used_opens_nothing(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log_file(path, *SET).close()
        log = LogFile.open(path, file_already_exists=True)
        monkeypatch.setattr(os, "open", lambda *args: pytest.fail("not needed"))
        log.close()

    def test_flush_of_what_others_wrote(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A segment that an earlier run left unsynced is synced too, and given back; but only once."""
        log_file(path, *SET).close_handlers()
        synced: list[int] = []
        monkeypatch.setattr(os, "fsync", synced.append)
        log = LogFile.open(path, file_already_exists=True)
        log.flush()
        log.flush()
        assert (len(synced), log.is_open) == (1, False)
        log.append(SET[0])
        log.flush()
        assert (len(synced), log.is_open) == (2, True)
        log.close()
        assert len(synced) == 2

    def test_close_syncs_what_was_written(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        synced: list[int] = []
        monkeypatch.setattr(os, "fsync", synced.append)
        log_file(path, *SET).close()
        assert len(synced) == 1
        LogFile.open(path, file_already_exists=True).close()
        assert len(synced) == 1

    def test_rename(self, log: LogFile, path: Path) -> None:
        log.rename_to(path.with_suffix(".log.deleted"))
        log.append(messages(3, "mnop"))
        log.release()
        assert offsets_in(log.read(0, 10**6)) == [0, 1, 2, 3]
        assert not path.exists()
        with pytest.raises(StorageError, match="rename"):
            log.rename_to(path.parent / "no" / "such")
        assert log.path == path.parent / "no" / "such"

    def test_delete(self, log: LogFile, path: Path) -> None:
        assert log.delete_if_exists()
        assert not log.delete_if_exists()
        assert not path.exists()
        with pytest.raises(StorageError, match="open"):
            log.read(0, 1)

    def test_a_folder_that_is_gone(self, tmp_path: Path) -> None:
        with pytest.raises(StorageError, match="open"):
            LogFile.open(tmp_path / "no" / "0.log")


class TestFullDisk:
    @pytest.mark.parametrize("room", [0, 1, 30])
    @pytest.mark.parametrize("preallocate", [False, True])
    def test_a_write_that_fails_is_cut_back(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, room: int, preallocate: bool
    ) -> None:
        log = LogFile.open(path, init_file_size=4096, preallocate=preallocate)
        log.append(SET[0])
        before = path.read_bytes()
        make_room = full_disk(monkeypatch, room=room)
        with pytest.raises(StorageError, match="No space left on device") as raised:
            log.append(SET[1])
        assert (raised.value.path, raised.value.position) == (str(path), len(SET[0]))
        assert path.read_bytes() == before
        make_room()
        log.append(SET[1])
        log.close()
        assert path.read_bytes() == SET[0] + SET[1]

    def test_where_even_cutting_back_fails_the_error_says_so(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = log_file(path, SET[0])
        make_room = full_disk(monkeypatch, room=20, cannot_cut=True)
        with pytest.raises(StorageError, match=r"No space left on device; nor could it be truncated to \d+ bytes"):
            log.append(SET[1])
        assert path.stat().st_size == len(SET[0]) + 20
        assert log.size_bytes == len(SET[0])
        assert log.read(0, 10**6) == SET[0]
        with pytest.raises(StorageError, match="truncate"):
            log.append(SET[1])
        make_room()
        log.append(messages(1, "e"))  # shorter than what was left there
        assert path.read_bytes() == SET[0] + messages(1, "e")
        log.close()

    def test_closing_cuts_what_could_not_be_cut(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = log_file(path, SET[0])
        make_room = full_disk(monkeypatch, room=20, cannot_cut=True)
        with pytest.raises(StorageError):
            log.append(SET[1])
        make_room()
        log.close()
        assert path.read_bytes() == SET[0]

    def test_short_writes_go_on(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = log_file(path)
        short_writes(monkeypatch, 7)
        for part in SET:
            assert log.append(part) == len(part)
        assert path.read_bytes() == b"".join(SET)
        log.close()

    def test_a_write_that_takes_nothing(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = log_file(path)
        short_writes(monkeypatch, 0)
        with pytest.raises(StorageError):
            log.append(SET[0])
        log.close()
        assert path.read_bytes() == b""

    def test_an_interrupted_write_is_cut_back_later(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = log_file(path, SET[0])
        real = os.pwrite

        def interrupted(fd: int, data: bytes, position: int) -> int:
            real(fd, data, position)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(os, "pwrite", interrupted)
            log.append(SET[1])
        log.append(SET[2])
        assert path.read_bytes() == SET[0] + SET[2]
        log.close()

    def test_a_sync_that_fails(self, log: LogFile, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(fd: int) -> None:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", broken)
            with pytest.raises(StorageError, match="sync"):
                log.flush()
            with pytest.raises(StorageError, match="sync"):
                log.close()
        assert not log.is_open

    def test_take_back(self, path: Path) -> None:
        log = LogFile.open(path, init_file_size=4096, preallocate=True)
        log.append(SET[0])
        log.append(SET[1])
        log.take_back(len(SET[0]))
        assert path.read_bytes() == SET[0].ljust(4096, b"\0")
        log.append(SET[2])
        log.close()
        assert path.read_bytes() == SET[0] + SET[2]


@examples(50)
@given(sizes=st.lists(st.integers(1, 20_000), max_size=12), start=st.integers(0, 12), magic=st.sampled_from([0, 1, 2]))
def test_every_batch_is_found(tmp_path_factory: pytest.TempPathFactory, sizes: list[int], start: int, magic: int) -> None:
    """Walks through batches of all sizes, read in chunks of all sizes, from any batch on."""
    parts = [
        batch(i, [i], value=b"v" * size) if magic == 2 else messages(i, "v" * size, magic=magic) for i, size in enumerate(sizes)
    ]
    log = log_file(tmp_path_factory.mktemp("log") / "0.log", *parts)
    found = list(log.batches(sum(map(len, parts[:start]))))
    assert [header.last_offset for header in found] == list(range(start, len(parts)))
    assert [log.read_batch(header) for header in found] == parts[start:]
    log.close()


class TestBytesToSend:
    """What is handed to the system unseen: mapped where there is much of it."""

    SIZE = MIN_MAPPED_BYTES

    def test_few_are_copied(self, tmp_path: Path) -> None:
        log = LogFile.open(tmp_path / "00000000000000000000.log")
        log.append(bytes(self.SIZE))
        assert type(log.view(0, self.SIZE - 1)) is bytes
        assert type(log.view(0, self.SIZE)) is memoryview
        log.close_handlers()

    def test_grown_and_cut(self, tmp_path: Path) -> None:
        log = LogFile.open(tmp_path / "00000000000000000000.log")
        log.append(b"a" * self.SIZE)
        first = log.view(0, self.SIZE)
        log.append(b"b" * self.SIZE)
        assert first == b"a" * self.SIZE
        assert log.view(self.SIZE, self.SIZE) == b"b" * self.SIZE
        log.unmap()
        assert first[:3] == b"aaa"
        log.truncate_to(self.SIZE)
        with pytest.raises(StorageError):
            log.mapped(0, self.SIZE + 1)
        log.append(b"c" * self.SIZE)
        assert log.view(self.SIZE, self.SIZE) == b"c" * self.SIZE
        log.close_handlers()
        assert first == b"a" * self.SIZE
