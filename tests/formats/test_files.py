"""Reading whole files: each byte is read once, however large the file is, and while it grows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tidelog.formats import files
from tidelog.formats.files import read_whole
from tidelog.formats.large_file import BLOCK_BYTES, DIRECT_BYTES, write_large
from tidelog.formats.paths.local_handle import LocalHandle

KIB = 1024


class Counted(LocalHandle):
    """Counts reads, and the bytes that they return."""

    reads = 0
    size_bytes = 0

    def read(self, position: int, length: int) -> bytes:
        data = super().read(position, length)
        Counted.reads += 1
        Counted.size_bytes += len(data)
        return data


@pytest.mark.parametrize("size_bytes", [0, 1, 64 * KIB, 640 * KIB, 6400 * KIB])
def test_a_whole_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size_bytes: int) -> None:
    """Neither reads nor copies grow faster than the file: pieces were once added to bytes, which copied all before them."""
    content = os.urandom(size_bytes)
    (tmp_path / "file").write_bytes(content)
    monkeypatch.setattr(files, "open_handle", Counted)
    Counted.reads = Counted.size_bytes = 0
    assert read_whole(tmp_path / "file") == content
    assert (Counted.reads, Counted.size_bytes) == (1, size_bytes)


def test_a_file_that_grows_is_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a" * 10)

    class Growing(Counted):
        def stat(self) -> os.stat_result:
            before = super().stat()
            path.write_bytes(b"a" * 100_000)
            return before

    monkeypatch.setattr(files, "open_handle", Growing)
    Counted.reads = Counted.size_bytes = 0
    assert read_whole(path) == b"a" * 100_000
    assert Counted.size_bytes < 3 * 100_000


@pytest.mark.parametrize("odd", [0, 1, BLOCK_BYTES - 1])
@pytest.mark.parametrize("shift", [0, 1])
def test_large_files_are_written_from_any_memory(tmp_path: Path, odd: int, shift: int) -> None:
    """Of any length, and over a longer file."""
    path = tmp_path / "file"
    path.write_bytes(bytes(2 * DIRECT_BYTES))
    data = os.urandom(DIRECT_BYTES + odd + shift)
    write_large(path, memoryview(data)[shift:])
    assert path.read_bytes() == data[shift:]


def test_a_file_system_that_cannot_write_directly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused at once, and after some blocks; any other error is raised."""
    data, real, refusals = os.urandom(DIRECT_BYTES + 5), os.write, [1]

    def write(fd: int, some: Any) -> int:
        if not refusals[0]:
            raise OSError(errno_of, "refused")
        refusals[0] -= 1
        return real(fd, some[:BLOCK_BYTES])

    monkeypatch.setattr(os, "O_DIRECT", 0o400_000_000, raising=False)  # A flag without a meaning.
    monkeypatch.setattr(os, "write", write)
    errno_of = 22
    for count in (0, 2):
        refusals[0] = count
        write_large(tmp_path / "file", data)
        assert (tmp_path / "file").read_bytes() == data
    errno_of = 28
    with pytest.raises(OSError, match="refused"):
        write_large(tmp_path / "file", data)
