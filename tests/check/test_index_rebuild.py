"""What Apache Kafka wrote, indexed again from the `.log`: every index must come out byte for byte."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from tests.reader.golden import GOLDEN
from tidelog.check.indexes.index_rebuild import RebuiltIndexes, index_logs, rebuild_indexes

SUFFIXES = (".index", ".timeindex", ".txnindex")
INTERVAL_BYTES = 512
INTERNAL_INTERVAL_BYTES = 4096  # Kafka's own topics have settings of their own.


def partitions(release: str, kind: str) -> list[Path]:
    return sorted(path for path in (GOLDEN / release / kind).iterdir() if path.is_dir())


def logs_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def interval_of(folder: Path) -> int:
    return INTERNAL_INTERVAL_BYTES if folder.name.startswith("__") else INTERVAL_BYTES


def rebuilt(folder: Path) -> list[RebuiltIndexes]:
    return list(index_logs(logs_of(folder), interval_of(folder)))


@pytest.mark.parametrize("folder", partitions("kafka-3.9.1", "log"), ids=lambda path: path.name)
def test_equal_to_kafkas(folder: Path) -> None:
    for one in rebuilt(folder):
        assert one.scanned.is_whole and not one.scanned.fault
        for suffix in SUFFIXES:
            kafkas = one.log_path.with_suffix(suffix)
            assert one.files[suffix] == (kafkas.read_bytes() if kafkas.exists() else b""), kafkas


@pytest.mark.parametrize("folder", partitions("kafka-3.9.1", "live"), ids=lambda path: path.name)
def test_equal_to_a_running_kafkas(folder: Path) -> None:
    """The last segment's indexes are preallocated, and its time index lacks the last entry."""
    *before, last = rebuilt(folder)
    for one in before:
        for suffix in SUFFIXES:
            kafkas = one.log_path.with_suffix(suffix)
            assert one.files[suffix] == (kafkas.read_bytes() if kafkas.exists() else b""), kafkas
    for suffix, entry_bytes in ((".index", 8), (".timeindex", 12)):
        kafkas_bytes = last.log_path.with_suffix(suffix).read_bytes()
        ours = last.files[suffix]
        assert kafkas_bytes.rstrip(b"\0") in (ours.rstrip(b"\0"), ours[:-entry_bytes].rstrip(b"\0"))
        assert len(kafkas_bytes) == 1200 // entry_bytes * entry_bytes


def test_written_in_place_and_elsewhere(tmp_path: Path) -> None:
    kafkas = GOLDEN / "kafka-3.9.1" / "log" / "transactions-0"
    names = sorted(path.name for path in kafkas.iterdir() if path.suffix in SUFFIXES)
    place, elsewhere = tmp_path / "transactions-0", tmp_path / "out"
    shutil.copytree(kafkas, place)
    elsewhere.mkdir()
    for path in place.iterdir():
        if path.suffix in SUFFIXES:
            path.write_bytes(b"nonsense")
    (place / "00000000000000000000.txnindex").write_bytes(b"no transaction was aborted here")
    kept = {path.name: path.read_bytes() for path in place.iterdir() if path.suffix not in SUFFIXES}
    for out_dir, folder in ((elsewhere, elsewhere), (None, place)):
        heard: list[int] = []
        found = list(rebuild_indexes(logs_of(place), INTERVAL_BYTES, out_dir=out_dir, threads=2, progress=heard.append))
        assert [one.log_path for one in found] == logs_of(place)
        assert sum(heard) == sum(path.stat().st_size for path in logs_of(place))
        assert sorted(path.name for path in folder.iterdir() if path.suffix in SUFFIXES) == names
        for name in names:
            assert (folder / name).read_bytes() == (kafkas / name).read_bytes(), name
    assert {path.name: path.read_bytes() for path in place.iterdir() if path.suffix not in SUFFIXES} == kept


def test_what_is_damaged_stays(tmp_path: Path) -> None:
    """The log is not cut: the indexes tell of what is valid, the answer tells the rest."""
    kafkas = GOLDEN / "kafka-3.9.1" / "log" / "v2-none-ct-0"
    log = tmp_path / "00000000000000000160.log"
    data = bytearray((kafkas / log.name).read_bytes())
    data[9000] ^= 1
    log.write_bytes(data)
    (one,) = rebuild_indexes([log], INTERVAL_BYTES)
    assert log.read_bytes() == data
    assert one.scanned.fault == "batch checksum does not match"
    assert one.scanned.valid_bytes <= 9000
    whole = (kafkas / "00000000000000000160.index").read_bytes()
    assert 0 < len(one.scanned.offset_entries) < len(whole) and whole.startswith(one.scanned.offset_entries)


def test_a_damaged_snapshot_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kafkas = GOLDEN / "kafka-3.9.1" / "log" / "transactions-0"
    name = "00000000000000000173"
    shutil.copy(kafkas / f"{name}.log", tmp_path)
    (tmp_path / f"{name}.snapshot").write_bytes(b"\0\1nonsense")
    with caplog.at_level(logging.WARNING):
        list(index_logs(logs_of(tmp_path), INTERVAL_BYTES))
    assert "transactions that were open at 173 count as begun later" in caplog.text
