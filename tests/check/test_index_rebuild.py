"""What Apache Kafka wrote, indexed again from the `.log`: every index must come out byte for byte."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from tests.reader.golden import GOLDEN
from tidelog.check.folder_indexes import RebuildOptions, rebuild_partitions
from tidelog.check.partitions import PartitionToVerify, RebuiltPartition
from tidelog.reader.log import Log

SUFFIXES = (".index", ".timeindex", ".txnindex")
INTERVAL_BYTES = 512
INTERNAL_INTERVAL_BYTES = 4096  # Kafka's own topics have settings of their own.


def partitions(release: str, kind: str) -> list[Path]:
    return sorted(path for path in (GOLDEN / release / kind).iterdir() if path.is_dir())


def logs_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def interval_of(folder: Path) -> int:
    return INTERNAL_INTERVAL_BYTES if folder.name.startswith("__") else INTERVAL_BYTES


def rebuild(folder: Path, out_dir: Path | None, **options: object) -> RebuiltPartition:
    wanted = RebuildOptions(out_dir, interval_of(folder), time_maps=False)._replace(**options)
    (found,) = rebuild_partitions([PartitionToVerify(lambda: Log.open(folder))], wanted)
    return found


def content(path: Path) -> bytes:
    """An empty segment has no index of its own: it is made with its first entry."""
    return path.read_bytes() if path.exists() else b""


@pytest.mark.parametrize("folder", partitions("kafka-3.9.1", "log"), ids=lambda path: path.name)
def test_equal_to_kafkas(folder: Path, tmp_path: Path) -> None:
    assert rebuild(folder, tmp_path).findings == []
    for log in logs_of(folder):
        for suffix in SUFFIXES:
            kafkas = log.with_suffix(suffix)
            assert content(tmp_path / folder.name / kafkas.name) == content(kafkas), kafkas


@pytest.mark.parametrize("folder", partitions("kafka-3.9.1", "live"), ids=lambda path: path.name)
def test_equal_to_a_running_kafkas(folder: Path, tmp_path: Path) -> None:
    """The last segment's indexes are preallocated, and its time index lacks the last entry."""
    rebuild(folder, tmp_path)
    *before, last = logs_of(folder)
    for log in before:
        for suffix in SUFFIXES:
            kafkas = log.with_suffix(suffix)
            assert content(tmp_path / folder.name / kafkas.name) == content(kafkas), kafkas
    for suffix, entry_bytes in ((".index", 8), (".timeindex", 12)):
        kafkas_bytes = last.with_suffix(suffix).read_bytes()
        ours = content(tmp_path / folder.name / last.with_suffix(suffix).name)
        assert kafkas_bytes.rstrip(b"\0") in (ours.rstrip(b"\0"), ours[:-entry_bytes].rstrip(b"\0"))
        assert len(kafkas_bytes) == 1200 // entry_bytes * entry_bytes


def test_written_in_place_and_elsewhere(tmp_path: Path) -> None:
    kafkas = GOLDEN / "kafka-3.9.1" / "log" / "transactions-0"
    names = sorted(path.name for path in kafkas.iterdir() if path.suffix in SUFFIXES)
    place, elsewhere = tmp_path / "transactions-0", tmp_path / "out"
    shutil.copytree(kafkas, place)
    for path in place.iterdir():
        if path.suffix in SUFFIXES:
            path.write_bytes(b"nonsense")
    (place / "00000000000000000000.txnindex").write_bytes(b"no transaction was aborted here")
    kept = {path.name: path.read_bytes() for path in place.iterdir() if path.suffix not in SUFFIXES}
    for out_dir, folder in ((elsewhere, elsewhere / place.name), (None, place)):
        heard: list[int] = []
        found = rebuild(place, out_dir, threads=2, progress=heard.append)
        assert (found.directory, found.segments) == (folder, len(logs_of(place)))
        assert sum(heard) == sum(path.stat().st_size for path in logs_of(place))
        assert sorted(path.name for path in folder.iterdir() if path.suffix in SUFFIXES) == names
        for name in names:
            assert (folder / name).read_bytes() == (kafkas / name).read_bytes(), name
    assert {path.name: path.read_bytes() for path in place.iterdir() if path.suffix not in SUFFIXES} == kept


def test_what_is_damaged_stays(tmp_path: Path) -> None:
    """The log is not cut: the indexes have what is valid, the answer reports the rest."""
    kafkas = GOLDEN / "kafka-3.9.1" / "log" / "v2-none-ct-0"
    folder = tmp_path / "v2-none-ct-0"
    folder.mkdir()
    log = folder / "00000000000000000160.log"
    data = bytearray((kafkas / log.name).read_bytes())
    data[9000] ^= 1
    log.write_bytes(data)
    (fault,) = rebuild(folder, None).findings
    assert log.read_bytes() == data
    assert fault.what.startswith("the batch checksum does not match")
    assert fault.position is not None and fault.position <= 9000
    whole, ours = (kafkas / "00000000000000000160.index").read_bytes(), log.with_suffix(".index").read_bytes()
    assert 0 < len(ours) < len(whole) and whole.startswith(ours)


def test_a_damaged_snapshot_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kafkas = GOLDEN / "kafka-3.9.1" / "log" / "transactions-0"
    folder = tmp_path / "transactions-0"
    folder.mkdir()
    name = "00000000000000000173"
    shutil.copy(kafkas / f"{name}.log", folder)
    (folder / f"{name}.snapshot").write_bytes(b"\0\1nonsense")
    with caplog.at_level(logging.WARNING):
        rebuild(folder, tmp_path / "out")
    assert "transactions that were open at offset 173 will seem to have begun later" in caplog.text
