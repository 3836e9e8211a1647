"""What is said of a folder that is no data folder: what it is, or which one was probably meant."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import tidelog
from tests.reader.golden import GOLDEN
from tidelog.errors import DataDirNotFoundError, TidelogError
from tidelog.reader.log_dir import LogDir

SEGMENT = f"{0:020d}.log"


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def installed(folder: Path) -> Path:
    """Return Apache Kafka's folder as it is unpacked and run: text logs, a configuration, data beside them."""
    write(folder, "config/server.properties", "logs/server.log", "logs/controller.log", "controller.log", "logs-1/server.log")
    return folder


def with_data(folder: Path, *names: str) -> Path:
    write(installed(folder), *(f"{name}/orders-0/{SEGMENT}" for name in names))
    return folder


CASES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "the parent": (lambda path: with_data(path, "data"), "; its subfolder data is a data folder"),
    "the parent of two": (lambda path: with_data(path, "data-1", "data-2"), "; its subfolders data-1, data-2 are data folders"),
    "the parent of many": (lambda path: with_data(path, *"abcdef"), "; its subfolders a, b, c, d, e, ... are data folders"),
    "nothing to be found": (installed, "not a data folder: it holds no partition ("),
    "text logs": (lambda path: with_data(path, "data") / "logs", "not a data folder: it holds no partition ("),
    "text logs below data": (lambda path: with_data(path, "logs") / "logs" / "text", "no partition; its parent is a data folder"),
    "a partition": (lambda path: with_data(path, "data") / "data" / "orders-0", "; it is a partition's folder"),
    "a metadata log": (lambda path: path / "ctl" / "__cluster_metadata-0", "; it is a partition's folder"),
    "a controller": (lambda path: path / "ctl", "no partition, only a KRaft metadata log; tidelog dump shows its files"),
    "empty": (lambda path: path / "empty", "it holds no partition, it is empty"),
    "a segment": (lambda path: with_data(path, "data") / "data" / "orders-0" / SEGMENT, "not a folder but a segment's file"),
    "a text file": (lambda path: installed(path) / "controller.log", "not a folder ("),
    "nothing": (lambda path: path / "nowhere", "no such folder"),
}


@pytest.mark.parametrize("case", list(CASES))
def test_what_is_said(case: str, tmp_path: Path) -> None:
    make, said = CASES[case]
    write(tmp_path, f"ctl/__cluster_metadata-0/{SEGMENT}", "logs/text/server.log")
    (tmp_path / "empty").mkdir()
    folder = make(tmp_path)
    with pytest.raises(DataDirNotFoundError) as raised:
        LogDir(folder)
    assert said in str(raised.value)


def test_a_partition_s_file_with_too_few_digits_is_still_seen(tmp_path: Path) -> None:
    """It is damage, which reading reports: the partition does not vanish."""
    write(tmp_path, "orders-0/5.log", "text-1/server.log")
    assert LogDir(tmp_path).topics() == {"orders": [0]}


@pytest.mark.parametrize(
    ("target", "said"), [("orders-1", "symbolic links"), ("/not/mounted", "no such folder|no longer exists")]
)
def test_a_partition_that_cannot_be_listed_does_not_vanish(tmp_path: Path, target: str, said: str) -> None:
    """As one on a disk that is not mounted, or of another user."""
    shutil.copytree(GOLDEN / "kafka-3.9.1" / "log" / "v2-none-ct-0", tmp_path / "orders-0")
    (tmp_path / "orders-1").symlink_to(target)
    assert LogDir(tmp_path).topics() == {"orders": [0, 1]}
    for read in (lambda: tidelog.scan(tmp_path, "orders").read_all(), lambda: tidelog.scan([tmp_path], "orders").read_all()):
        with pytest.raises(TidelogError, match=f"({said}).*orders-1"):
            read()
    assert tidelog.scan(tmp_path, "orders", partitions=[0]).read_all().num_rows == 900
