"""Index jobs: what Spark's workers write and find is what `tidelog index` writes and finds, and what Kafka wrote."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.reader import build
from tests.reader.build import LogBuilder
from tests.reader.golden import GOLDEN
from tidelog.check.folder_indexes import RebuildOptions, VerifyOptions, rebuild_partitions, verify_partitions
from tidelog.check.partitions import partitions_to_verify, select_partitions
from tidelog.errors import InvalidArgumentError, NotFoundError, StorageError, UnknownTopicOrPartitionError
from tidelog.formats.dir_lock import DirLock
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.records.builder import Producer
from tidelog.records.control import ControlType
from tidelog.spark.jobs.indexes import _check_shared, rebuild_indexes, verify_indexes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.jobs.result import JobResult

KAFKA_3 = GOLDEN / "kafka-3.9.1" / "log"
KAFKA_2 = GOLDEN / "kafka-2.4.1" / "log"
INDEXES = (".index", ".timeindex", ".txnindex")
MADE = (*INDEXES, ".timemap", ".summary")
PRODUCERS = (7, 8, 9)


def files(folder: Path, *suffixes: str) -> dict[str, bytes]:
    wanted = suffixes or MADE
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.suffix in wanted}


def on_threads(directory: Path, out: Path) -> dict[str, bytes]:
    """What `tidelog index rebuild` makes of a folder."""
    log_dir = LogDir(directory)
    list(rebuild_partitions(partitions_to_verify(log_dir, select_partitions(log_dir)), RebuildOptions(out)))
    return files(out)


def found_on_threads(directory: Path) -> list[tuple[Any, ...]]:
    """What `tidelog index verify` finds: findings, and a partition's counts."""
    log_dir = LogDir(directory)
    found: list[tuple[Any, ...]] = []
    for one in verify_partitions(partitions_to_verify(log_dir, select_partitions(log_dir)), VerifyOptions()):
        for each in one.findings:
            where = (one.topic, one.partition, str(each.path), each.entry, each.position)
            found.append(("fault" if each.is_fault else "note", *where, each.what, each.found, each.expected))
        counts = (one.segments, one.size_bytes, one.interval_bytes, one.offset_entries, one.time_entries)
        found.append(("partition", one.topic, one.partition, *counts, one.aborted_transactions, one.time_maps, one.faults))
    return found


def found_by(result: JobResult) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for row in result.rows.collect():
        kind, topic, partition, path, *finding = row[:9]
        found.append((kind, topic, partition, *row[9:]) if kind == "partition" else (kind, topic, partition, path, *finding))
    return found


def transactions(folder: Path, seed: int) -> list[tuple[int, int, int, int]]:
    """Write a partition of many small segments in which transactions of three producers overlap, across segments too.

    Returns the aborted ones by a model of its own: marker's segment, producer, first and last offset.
    """
    chance = random.Random(seed)
    builder = LogBuilder(folder, segment_bytes=900, interval_bytes=200)
    opened: dict[int, int] = {}
    aborted = []
    for offset in range(160):
        producer = chance.choice(PRODUCERS)
        if producer in opened and chance.random() < 0.4:
            kind = chance.choice([ControlType.ABORT, ControlType.COMMIT])
            builder.append(build.marker(offset, 1000 + offset, kind, producer))
            first = opened.pop(producer)
            if kind is ControlType.ABORT:
                aborted.append((builder.base_offset, producer, first, offset))
        else:
            inside = chance.random() < 0.8
            data = build.batch(
                offset, [1000 + chance.randrange(500)], producer=Producer(producer, 0, offset), transactional=inside
            )
            builder.append(data)
            if inside:
                opened.setdefault(producer, offset)
    builder.close()
    assert len(list(folder.glob("*.log"))) > 8
    return aborted


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A folder with transactions, a damaged batch in the middle, a torn tail, an empty partition, older formats."""
    folder = tmp_path / "data"
    folder.mkdir()
    transactions(folder / "txn-0", 5)
    transactions(folder / "broken-0", 6)
    log = sorted((folder / "broken-0").glob("*.log"))[3]
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    transactions(folder / "torn-0", 7)
    log = max((folder / "torn-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-20])
    (folder / "empty-3").mkdir()
    (folder / "empty-3" / f"{0:020}.log").touch()
    shutil.copytree(KAFKA_2 / "migrated-v0-v1-v2-0", folder / "migrated-v0-v1-v2-0")
    index = max((folder / "migrated-v0-v1-v2-0").glob("*.index"), key=lambda path: path.stat().st_size)
    data = bytearray(index.read_bytes())
    data[15] ^= 1  # The second entry points beside its batch.
    index.write_bytes(data)
    return folder


# --- rebuild


def test_kafkas_own_bytes_come_out(spark: SparkSession, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in KAFKA_3.rglob("*")}
    heard: list[tuple[int, int]] = []
    result = rebuild_indexes(spark, KAFKA_3, out_dir=tmp_path / "out", progress=lambda *done: heard.append(done))
    assert {path: path.stat().st_mtime_ns for path in KAFKA_3.rglob("*")} == before
    made, kafkas = files(tmp_path / "out", *INDEXES), files(KAFKA_3, *INDEXES)
    # What has no batch gets no files from us, empty ones from Kafka.
    assert made == {name: data for name, data in kafkas.items() if not name.startswith(("empty-0", "__consumer_offsets-0"))}
    assert files(tmp_path / "out") == on_threads(KAFKA_3, tmp_path / "threads")
    rows = result.rows.collect()
    assert {row.kind for row in rows} == {"file"}
    assert {row.path for row in rows} == {str(tmp_path / "out" / name) for name in files(tmp_path / "out")}
    assert all(row.new_bytes == Path(row.path).stat().st_size and row.old_bytes is None for row in rows)
    assert result.faults == 0
    assert heard[-1][0] == heard[-1][1] > 1


def test_the_same_as_on_threads_whatever_is_wrong(spark: SparkSession, damaged: Path, tmp_path: Path) -> None:
    theirs = on_threads(damaged, tmp_path / "threads")
    result = rebuild_indexes(spark, damaged, out_dir=tmp_path / "out")
    assert files(tmp_path / "out") == theirs
    assert result.faults == 1
    (fault,) = result.rows.where("kind = 'fault'").collect()
    assert fault.topic == "broken"
    assert "no index covers the rest of the log" in fault.what
    in_place = rebuild_indexes(spark, damaged)
    assert files(damaged) == theirs
    summary = {row[0]: dict(zip(in_place.summary.columns, row, strict=True)) for row in in_place.summary.rows}
    assert summary["migrated-v0-v1-v2"]["changed"] > 0
    assert {name: row["faults"] for name, row in summary.items()} == {
        **dict.fromkeys(summary, 0),
        "broken": 1,
    }
    again = rebuild_indexes(spark, damaged)
    assert all(row.is_right for row in again.rows.where("kind = 'file'").collect())


@pytest.mark.parametrize("seed", [1, 2])
def test_transactions_over_many_segments(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """The unit of work is a segment, and what reaches over segments is right all the same: by a model without any of our code."""
    aborted = transactions(tmp_path / "data" / "t-0", seed)
    builders = files(tmp_path / "data", *INDEXES)
    rebuild_indexes(spark, tmp_path / "data", out_dir=tmp_path / "out", interval_bytes=200)
    assert files(tmp_path / "out", *INDEXES) == builders
    told = []
    for path in sorted((tmp_path / "out" / "t-0").glob("*.txnindex")):
        for _, producer, first, last, _ in struct.iter_unpack(">hqqqq", path.read_bytes()):
            told.append((int(path.stem), producer, first, last))
    assert told == aborted
    assert len({base for base, *_ in told}) > 3


def test_build_writes_only_what_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(KAFKA_3 / "transactions-0", folder / "transactions-0")
    kafkas = files(folder, *INDEXES)
    first, second, *rest = [folder / name for name in kafkas]
    first.write_bytes(b"nonsense")
    second.unlink()
    txn = next(path for path in rest if path.suffix == ".txnindex")
    txn.unlink()
    result = rebuild_indexes(spark, folder, missing_only=True)
    assert first.read_bytes() == b"nonsense"
    assert {**files(folder, *INDEXES), str(first.relative_to(folder)): kafkas[str(first.relative_to(folder))]} == kafkas
    rows = {row.path: row for row in result.rows.collect()}
    assert (rows[str(first)].is_left, rows[str(first)].is_right) == (True, False)
    assert [path for path, row in rows.items() if row.old_bytes is None and Path(path).suffix in INDEXES] == sorted(
        [str(second), str(txn)]
    )
    values = dict(zip(result.summary.columns, result.summary.rows[0], strict=True))
    assert (values["left"], values["changed"], values["new"]) == (1, 0, 2 + values["segments"] + 1)  # The last one: the summary.
    maps = {path: path.stat().st_mtime_ns for path in folder.rglob("*.timemap")}
    rebuild_indexes(spark, folder, missing_only=True)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.timemap")} == maps


# --- verify


@pytest.mark.parametrize("release", ["kafka-3.9.1", "kafka-2.4.1"])
@pytest.mark.parametrize("kind", ["log", "live"])
def test_finds_what_threads_find(spark: SparkSession, release: str, kind: str) -> None:
    result = verify_indexes(spark, GOLDEN / release / kind)
    assert found_by(result) == found_on_threads(GOLDEN / release / kind)
    assert result.faults == 0


def test_finds_every_fault_that_threads_find(spark: SparkSession, damaged: Path) -> None:
    for path in sorted(damaged.rglob("*.txnindex"))[::2]:
        path.write_bytes(path.read_bytes()[34:])
    result = verify_indexes(spark, damaged)
    expected = found_on_threads(damaged)
    assert found_by(result) == expected
    assert result.faults == sum(row[0] == "fault" for row in expected) > 5
    by_topic = {row[0]: row[-1] for row in result.summary.rows}
    assert sum(by_topic.values()) == result.faults
    assert by_topic["migrated-v0-v1-v2"] > 0


def test_time_maps_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    rebuild_indexes(spark, KAFKA_3, "two-partitions", [1], out_dir=tmp_path / "out")
    result = verify_indexes(spark, KAFKA_3, "two-partitions", [1, 1], time_map_dir=tmp_path / "out")
    (row,) = result.rows.collect()
    assert (row.partition, row.time_maps) == (1, row.segments)


# --- what can go wrong


def test_errors_come_before_and_after_the_work(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(KAFKA_3 / "two-partitions-0", data / "two-partitions-0")
    with pytest.raises(UnknownTopicOrPartitionError):
        verify_indexes(spark, data, "nope")
    with pytest.raises(InvalidArgumentError):
        verify_indexes(spark, data, partitions=[0])
    with pytest.raises(NotFoundError, match="the time map directory does not exist"):
        verify_indexes(spark, data, time_map_dir=tmp_path / "nowhere")
    with pytest.raises(InvalidArgumentError, match="inside the data folder"):
        rebuild_indexes(spark, data, out_dir=data / "out")
    with DirLock(data), pytest.raises(StorageError, match="using this folder"):
        rebuild_indexes(spark, data)
    # An index that cannot be written is the workers' error; it arrives with its path.
    index = next(data.rglob("*.timeindex"))
    index.unlink()
    index.mkdir()
    with pytest.raises(StorageError) as caught:
        rebuild_indexes(spark, data)
    assert caught.value.path == str(index)
    with DirLock(data):
        pass  # It was given back.


def test_two_workers_at_one_segment_are_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    conf = spark.sparkContext.getConf().set("spark.speculation", "true")
    monkeypatch.setattr(spark.sparkContext, "getConf", lambda: conf)
    with pytest.raises(InvalidArgumentError, match=r"spark\.speculation"):
        rebuild_indexes(spark, KAFKA_3, out_dir=tmp_path / "out")


def test_a_worker_without_the_folder_is_no_missing_file(tmp_path: Path) -> None:
    log = Log.open(shutil.copytree(KAFKA_3 / "two-partitions-0", tmp_path / "two-partitions-0"))
    with pytest.raises(StorageError, match="must have the same path on every machine"):
        _check_shared(log.segments[:1])
    log.segments[0].log_path.unlink()
    _check_shared(log.segments[:1])
