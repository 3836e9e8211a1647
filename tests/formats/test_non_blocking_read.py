"""Reads that do not wait: what they give, what they raise, and what they do where a file system cannot say."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.segment_files import open_descriptors
from tidelog.formats.non_blocking_read import NotCachedError, is_non_blocking, non_blocking, pread

DATA = bytes(range(256)) * 1024


@pytest.fixture
def fd(disk_path: Path) -> Iterator[int]:
    (disk_path / "file").write_bytes(DATA)
    fd = os.open(disk_path / "file", os.O_RDWR)
    yield fd
    os.close(fd)


@pytest.mark.parametrize(
    ("length", "position"), [(10, 0), (1000, 4090), (100, len(DATA) - 50), (5, len(DATA)), (200_000, 3), (0, 0)]
)
def test_what_is_in_memory(fd: int, length: int, position: int) -> None:
    with non_blocking():
        assert pread(fd, length, position) == DATA[position : position + length] == os.pread(fd, length, position)


def test_nested() -> None:
    assert not is_non_blocking()
    with non_blocking():
        with non_blocking():
            assert is_non_blocking()
        assert is_non_blocking()
    assert not is_non_blocking()


def test_what_is_not_in_memory(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error owns a descriptor of its own: the reader's may be closed meanwhile."""
    before = open_descriptors()

    def again(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "not now")

    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", again)
        with non_blocking(), pytest.raises(NotCachedError) as caught:
            pread(fd, 100, 50)
        assert pread(fd, 100, 50) == DATA[50:150]  # Who may wait does.
    error = caught.value
    assert (error.position, error.length) == (50, 100)
    assert open_descriptors() == before + 1
    error.prefetch()
    error.close()
    assert open_descriptors() == before
    with non_blocking():
        assert pread(fd, 100, 50) == DATA[50:150]


def test_a_part_is_in_memory(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer bytes than asked for are no end of the file."""
    preadv = os.preadv

    def at_most_thousand(fd: int, buffers: tuple[memoryview], position: int, flags: int = 0) -> int:
        return preadv(fd, (buffers[0][:1000],), position, flags)

    monkeypatch.setattr(os, "preadv", at_most_thousand)
    with non_blocking():
        assert pread(fd, 5000, 10) == DATA[10:5010]
        assert pread(fd, 5000, len(DATA) - 1500) == DATA[-1500:]


def test_a_file_system_that_cannot_tell(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    preadv = os.preadv

    def unsupported(fd: int, buffers: tuple[memoryview], position: int, flags: int = 0) -> int:
        if flags:
            raise OSError(errno.EOPNOTSUPP, "no such flag here")
        return preadv(fd, buffers, position)

    monkeypatch.setattr(os, "preadv", unsupported)
    with non_blocking():
        assert pread(fd, 100, 50) == DATA[50:150]
