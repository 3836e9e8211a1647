"""Our own small files: what they may hold, and what is said of others."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.errors import CorruptCheckpointError, StorageError
from tidelog.formats.json_files import make_folder, read_json, understanding, write_json, write_new_json


def test_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    assert read_json(path, 3, "a file") is None
    write_json(path, 3, {"name": "Gezeiten-Überblick", "numbers": [1, 2]})
    assert read_json(path, 3, "a file") == {"version": 3, "name": "Gezeiten-Überblick", "numbers": [1, 2]}
    assert [one.name for one in tmp_path.iterdir()] == ["file.json"]
    write_json(path, 3, {"path": os.fsdecode(b"/backup/\xff")})
    assert read_json(path, 3, "a file") == {"version": 3, "path": "/backup/\udcff"}
    write_json(path, 3, {}, indent=None)
    assert path.read_text() == '{"version": 3}\n'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "a file is not JSON"),
        (b"\xff\xfe", "a file is not JSON"),
        (b"[" * 100_000, "a file is not JSON"),
        (b"[3]", "a file is not a JSON object: found list"),
        (b"{}", "a file has an unknown version: found none, expected 3"),
        (b'{"version": 4}', "a file has an unknown version: found 4, expected 3"),
        (b'{"version": "3"}', "a file has an unknown version: found '3', expected 3"),
    ],
)
def test_anything_else_is_an_error(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(CorruptCheckpointError) as error:
        read_json(path, 3, "a file")
    assert str(error.value).startswith(said)
    assert str(error.value).endswith(f"({path})")
    assert path.read_bytes() == content


def test_a_folder_in_its_place(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot read a file"):
        read_json(tmp_path, 3, "a file")
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot create a folder"):
        make_folder(tmp_path / "file" / "below")


@pytest.mark.parametrize(
    "take_apart",
    [
        lambda content: content["none"],
        lambda content: int(content["name"]),
        lambda content: len(content["number"]),
        lambda content: int(content["infinite"]),
    ],
    ids=["missing", "no number", "no list", "Infinity"],
)
def test_taken_apart(tmp_path: Path, take_apart: Callable[[dict[str, object]], object]) -> None:
    with pytest.raises(CorruptCheckpointError, match="a file has unexpected content"), understanding(tmp_path, "a file"):
        take_apart({"name": "four", "number": 5, "infinite": float("inf")})


@pytest.mark.parametrize("has_links", [True, False])
def test_a_new_file_is_one_writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool) -> None:
    def no_links(*paths: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    if not has_links:
        monkeypatch.setattr(os, "link", no_links)
    path = tmp_path / "file.json"
    assert write_new_json(path, 3, {"writer": 1})
    assert not write_new_json(path, 3, {"writer": 2})
    assert read_json(path, 3, "a file") == {"version": 3, "writer": 1}
    assert [one.name for one in tmp_path.iterdir()] == ["file.json"]
    with pytest.raises(StorageError, match=r"cannot write a file: No such file.*nowhere/file\.json"):
        write_new_json(tmp_path / "nowhere" / "file.json", 3, {})


def test_of_many_writers_one_is_told_so(tmp_path: Path) -> None:
    path, ready, told = tmp_path / "file.json", threading.Barrier(8), []

    def write(number: int) -> None:
        ready.wait()
        if write_new_json(path, 3, {"writer": number}):
            told.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_json(path, 3, "a file") == {"version": 3, "writer": told[0]}
    assert len(told) == 1
    assert [one.name for one in tmp_path.iterdir()] == ["file.json"]
