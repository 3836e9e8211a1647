"""Outputs: a file appears only when it is whole, and what cannot be written is one error that names it."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tidelog.cli.printing.output import open_output
from tidelog.errors import InvalidArgumentError, StorageError


def write(target: Path, data: bytes = b"new", data_dir: str = "/nonexistent") -> None:
    with open_output(str(target), format_name="jsonl", binary=False, data_dir=data_dir) as out:
        out.write(data)


def test_the_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    with open_output(str(target), format_name="jsonl", binary=False, data_dir="/nonexistent") as out:
        out.write(b"x" * 1_000_000)
        assert not target.exists()
        assert len(list(tmp_path.iterdir())) == 1
    assert target.read_bytes() == b"x" * 1_000_000
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_a_run_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    target.write_bytes(b"old")
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), open_output(str(target), format_name="jsonl", binary=False, data_dir="/nonexistent") as out:
            out.write(b"half")
            raise error
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_an_existing_file_is_replaced_with_its_mode_and_through_links(tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(target)
    write(link)
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_new_file_obeys_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(tmp_path / "out")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640


def test_a_name_as_long_as_a_name_can_be(tmp_path: Path) -> None:
    write(tmp_path / ("n" * 255))
    assert len(list(tmp_path.iterdir())) == 1


def test_what_is_no_regular_file_is_written_as_it_is(tmp_path: Path) -> None:
    write(Path("/dev/null"))
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()))
    reader.start()
    write(fifo)
    reader.join(timeout=PATIENCE_S)
    assert got == [b"new"]


def test_a_full_disk(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    with pytest.raises(StorageError, match=r"cannot write: No space left on device \(/dev/full\)"):
        write(full)
    with pytest.raises(StorageError, match=r"No space left on device"):
        write(full, b"x" * 1_000_000)


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="the output is a folder"):
        write(tmp_path)
    with pytest.raises(StorageError, match=r"cannot write: No such file or directory .*missing/out"):
        write(tmp_path / "missing" / "out")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match=r"cannot write: Not a directory"):
        write(tmp_path / "file" / "out")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(StorageError, match="cannot write"):
        write(loop)


def test_never_inside_the_data_folder(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    (data_dir / "topic-0").mkdir(parents=True)
    segment = data_dir / "topic-0" / "00000000000000000000.log"
    segment.write_bytes(b"precious")
    link = tmp_path / "link"
    link.symlink_to(segment)
    for target in (segment, data_dir / "out", link, tmp_path / "data" / "topic-0" / ".." / "out"):
        with pytest.raises(InvalidArgumentError, match="inside the data folder"):
            write(target, data_dir=str(data_dir))
    assert segment.read_bytes() == b"precious"
    assert len(list(data_dir.iterdir())) == 1
    write(tmp_path / "database", data_dir=str(data_dir))
