"""Indexes and time maps of whole folders rebuilt: Kafka's own bytes again, in place and elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.check.verifying import copied, faults, verified
from tests.reader import build
from tests.reader.build import LogBuilder
from tests.reader.golden import GOLDEN
from tidelog.check.folder_indexes import RebuildOptions, rebuild_partitions
from tidelog.check.partitions import PartitionToVerify, RebuiltPartition
from tidelog.errors import StorageError
from tidelog.formats.names import SEGMENT_SUMMARY
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.reader.time_map_file import read_time_map

KAFKA_3 = GOLDEN / "kafka-3.9.1" / "log"
INDEXES = (".index", ".timeindex", ".txnindex")


def rebuilt(folder: Path, **options: object) -> RebuiltPartition:
    (one,) = rebuild_partitions(
        [PartitionToVerify(lambda: Log.open(folder))],
        RebuildOptions(**options),  # type: ignore[arg-type]
    )
    return one


def indexes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in INDEXES}


def others(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir() if path.suffix not in INDEXES}


def test_all_of_kafkas_folder_elsewhere(tmp_path: Path) -> None:
    """The data folder is only read; what comes out is what Kafka wrote, byte for byte."""
    log_dir = LogDir(KAFKA_3)
    keys = [(topic, partition) for topic, numbers in log_dir.topics().items() for partition in numbers]
    before = {path: path.stat().st_mtime_ns for path in KAFKA_3.rglob("*")}
    opened = [PartitionToVerify(lambda key=key: log_dir.log(*key)) for key in keys]
    found = list(rebuild_partitions(opened, RebuildOptions(tmp_path / "out", threads=2)))
    assert [(one.topic, one.partition) for one in found] == keys
    assert {path: path.stat().st_mtime_ns for path in KAFKA_3.rglob("*")} == before
    for one in found:
        theirs = indexes(KAFKA_3 / one.directory.name)
        if one.directory.name in ("empty-0", "__consumer_offsets-0"):
            assert indexes(one.directory) == {}
            continue
        assert indexes(one.directory) == theirs
        assert all(file.old_bytes is None for file in one.files)
        logs = list((KAFKA_3 / one.directory.name).glob("*.log"))
        assert one.segments == len(logs)
        assert sorted(path.stem for path in one.directory.glob("*.timemap")) == sorted(path.stem for path in logs)


def test_in_place_only_what_differs_is_written(tmp_path: Path) -> None:
    folder = copied(KAFKA_3 / "transactions-0", tmp_path)
    kafkas = indexes(folder)
    rest = others(folder)
    names = sorted(kafkas)
    (folder / names[0]).write_bytes(b"nonsense")
    (folder / names[1]).unlink()
    (folder / f"{0:020}.txnindex").write_bytes(b"no transaction was aborted here")
    untouched = {name: (folder / name).stat().st_ino for name in names[2:]}
    one = rebuilt(folder, time_maps=False)
    assert indexes(folder) == kafkas
    assert others(folder) == rest
    assert {name: (folder / name).stat().st_ino for name in names[2:]} == untouched
    assert {(file.path.name, file.old_bytes, file.new_bytes) for file in one.changed} == {
        (names[0], 8, len(kafkas[names[0]])),
        (f"{0:020}.txnindex", 31, None),
    }
    assert [file.path.name for file in one.new] == [names[1]]
    assert sum(file.is_right for file in one.files) == len(names) - 2
    assert one.interval_bytes == 512
    assert verified(folder).findings == []


def test_time_maps_are_right_and_replaced_where_they_are_not(tmp_path: Path) -> None:
    folder = copied(KAFKA_3 / "v2-zstd-lat-0", tmp_path)
    first = rebuilt(folder)
    maps = sorted(folder.glob("*.timemap"))
    assert [file.path for file in first.new] == [*maps, folder / SEGMENT_SUMMARY]
    assert len(maps) == first.segments
    assert all(read_time_map(path) is not None for path in maps)
    data = maps[2].read_bytes()
    maps[2].write_bytes(data[:-1] + b"\xff")
    again = rebuilt(folder)
    assert [file.path for file in again.changed] == [maps[2]]
    assert maps[2].read_bytes() == data
    assert again.new == []
    assert faults(folder) == []


def test_wiped_indexes_come_back_with_the_topics_interval(tmp_path: Path) -> None:
    """Nothing is left that would tell the interval: what is known of the topic does, or the caller, or Kafka's default."""
    for options, likely, same in (({}, 512, True), ({"interval_bytes": 512}, None, True), ({}, None, False)):
        folder = copied(KAFKA_3 / "v2-none-ct-0", tmp_path / str(likely) / str(same) / str(len(options)))
        kafkas = indexes(folder)
        for name in kafkas:
            (folder / name).unlink()
        list(
            rebuild_partitions(
                [PartitionToVerify(lambda folder=folder: Log.open(folder), likely)],
                RebuildOptions(**options),  # type: ignore[arg-type]
            )
        )
        assert (indexes(folder) == kafkas) == same
        assert faults(folder, options.get("interval_bytes", likely)) == []


def test_live_indexes_lose_their_padding(tmp_path: Path) -> None:
    folder = copied(GOLDEN / "kafka-3.9.1" / "live" / "future-pinned-0", tmp_path)
    one = rebuilt(folder)
    last = f"{289:020}"
    assert [(file.path.name, file.old_bytes) for file in one.changed] == [(f"{last}.index", 1200), (f"{last}.timeindex", 1200)]
    assert indexes(folder) == indexes(KAFKA_3 / "future-pinned-0")


def test_what_is_behind_damage_is_not_indexed_and_told(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "t-0", interval_bytes=300)
    for n in range(50):
        builder.append(build.batch(n, [1000 + n], value=b"value"))
    folder = builder.roll().append(build.batch(50, [2000])).close().directory
    size = len(build.batch(0, [1000], value=b"value"))
    log = folder / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[20 * size - 1] ^= 1
    log.write_bytes(data)
    one = rebuilt(folder, interval_bytes=300)
    assert log.read_bytes() == data
    (finding,) = one.findings
    assert (finding.path, finding.position) == (log, 19 * size)
    index = (folder / f"{0:020}.index").read_bytes()
    assert index and int.from_bytes(index[-4:], "big") < 19 * size
    time_map = read_time_map(log.with_suffix(".timemap"))
    assert time_map is not None and time_map.covered_bytes == 19 * size


def test_a_disk_that_refuses(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"a file")
    with pytest.raises(StorageError, match="cannot create a folder"):
        rebuilt(KAFKA_3 / "v2-none-ct-0", out_dir=tmp_path / "out")


def test_an_empty_partition(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / f"{0:020}.log").touch()
    one = rebuilt(folder)
    assert (one.segments, one.files) == (1, [])
    assert sorted(path.name for path in folder.iterdir()) == [f"{0:020}.log"]
    shutil.rmtree(folder)
