"""A folder in old message formats, migrated: what is served, what the engine and its tools say of it, and what is refused."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import tidelog
from tests.examples import examples
from tests.reader.build import LogBuilder, batch, marker
from tests.reader.golden import GOLDEN
from tests.sources.logs import ROW_COLUMNS, plain, rows_of
from tests.sources.test_property import NOON, steps, write
from tidelog.check.folder_indexes import VerifyOptions, verify_partitions
from tidelog.check.migration.folder_migration import abandon, begin, finish, index_transactions, transactions_to_index
from tidelog.check.migration.segment_migration import MigratedSegment, migrate_segment
from tidelog.check.partitions import partitions_to_verify, select_partitions
from tidelog.clock import ManualClock
from tidelog.errors import CorruptBatchError, InvalidArgumentError, UnknownTopicOrPartitionError
from tidelog.reader.log_dir import LogDir
from tidelog.reader.time_search import find_offset
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType
from tidelog.records.records import Record, iter_records
from tidelog.storage.folder.folder_topics import read_topics
from tidelog.storage.log_manager import LogManager

SOURCE = GOLDEN / "kafka-2.4.1" / "log"


def migrate(source: Path, out_dir: Path, topic: str | None = None, **how: int) -> list[MigratedSegment]:
    """What the job does, in this process."""
    migration = begin(source, out_dir, topic, **how)
    try:
        done = [migrate_segment(task) for task in migration.segments]
        for task in transactions_to_index(migration, done):
            index_transactions(task)
        finish(migration, done, ManualClock(1_800_000_000_000))
    except BaseException:
        abandon(migration)
        raise
    return done


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def records(folder: Path, topic: str, partition: int = 0) -> list[Record]:
    with LogDir(folder).log(topic, partition) as log:
        return [
            record
            for segment, header in log.segment_headers()
            for record in iter_records(header, segment.read_batch(header))
            if record.offset >= log.log_start_offset
        ]


def faults(folder: Path) -> list[str]:
    log_dir = LogDir(folder)
    partitions = partitions_to_verify(log_dir, select_partitions(log_dir))
    return [str(one) for result in verify_partitions(partitions, VerifyOptions()) for one in result.findings if one.is_fault]


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[MigratedSegment]]]:
    out_dir = tmp_path_factory.mktemp("migrated") / "new"
    before = contents(SOURCE)
    done = migrate(SOURCE, out_dir)
    assert contents(SOURCE) == before
    assert sorted(path.name for path in out_dir.parent.iterdir()) == ["new"]
    yield out_dir, done


@cache
def golden_topics() -> dict[str, Any]:
    topics: dict[str, Any] = json.loads((GOLDEN / "kafka-2.4.1" / "expected.json").read_text())["topics"]
    return topics


@pytest.mark.parametrize("topic", golden_topics())
def test_what_kafka_served_is_served_again(migrated: tuple[Path, list[MigratedSegment]], topic: str) -> None:
    out_dir, _ = migrated
    for expected in golden_topics()[topic]:
        found = records(out_dir, topic, expected["partition"])
        old = records(SOURCE, topic, expected["partition"])
        # Kafka told a client that has all formats; a record without a type has CreateTime in v2.
        assert [
            [
                record.offset,
                record.timestamp,
                None if record.key is None else base64.b64encode(record.key).decode(),
                None if record.value is None else base64.b64encode(record.value).decode(),
            ]
            for record in found
        ] == [[offset, timestamp, key, value] for offset, timestamp, _, key, value, _ in expected["records"]]
        assert [record._replace(timestamp_type=max(record.timestamp_type, CREATE_TIME)) for record in old] == found
        with LogDir(out_dir).log(topic, expected["partition"]) as log:
            assert {header.magic for header in log.headers()} == {2}
            assert log.log_start_offset == expected["log_start"]
            for target, offset, timestamp in expected["list_offsets"]:
                answer = find_offset(log, target)
                if topic.startswith("v0"):
                    assert answer is None
                elif isinstance(offset, int) and offset >= 0:
                    assert answer is not None and (answer.offset, answer.timestamp) == (offset, timestamp)


def test_segments_codecs_and_times_of_files_are_kept(migrated: tuple[Path, list[MigratedSegment]]) -> None:
    out_dir, done = migrated
    old = {path.relative_to(SOURCE): path for path in SOURCE.rglob("*.log")}
    new = {path.relative_to(out_dir): path for path in out_dir.rglob("*.log")}
    assert old.keys() == new.keys()
    for name, path in old.items():
        assert new[name].stat().st_mtime_ns == path.stat().st_mtime_ns, name
    for topic, partition in select_partitions(LogDir(SOURCE)):
        with LogDir(SOURCE).log(topic, partition) as before, LogDir(out_dir).log(topic, partition) as after:
            kinds = [{(header.codec, max(header.timestamp_type, 0)) for header in log.headers()} for log in (before, after)]
            assert kinds[0] == kinds[1]
            old_v2 = [bytes(one.read_batch(header)) for one, header in before.segment_headers() if header.magic == 2]
            new_batches = {bytes(one.read_batch(header)) for one, header in after.segment_headers()}
            assert new_batches.issuperset(old_v2)
    by_place = {(one.topic, one.base_offset): one for one in done}
    for one in done:
        assert one.old_bytes == old[Path(f"{one.topic}-{one.partition}/{one.base_offset:020d}.log")].stat().st_size
        assert one.new_bytes == new[Path(f"{one.topic}-{one.partition}/{one.base_offset:020d}.log")].stat().st_size
    assert {one.old_format for one in done if one.topic == "migrated-v0-v1-v2"} == {"v0, v1", "v1", "v1, v2", "v2"}
    assert by_place["v2-none-ct", 0].converted_batches == 0 and by_place["v2-none-ct", 0].old_format == "v2"
    assert by_place["v0-none-ct", 0].converted_batches == by_place["v0-none-ct", 0].batches > 0
    assert all(one.new_segments == 1 and one.torn_bytes == 0 for one in done)


def test_indexes_are_right_and_the_engine_goes_on(migrated: tuple[Path, list[MigratedSegment]]) -> None:
    out_dir, _ = migrated
    assert faults(out_dir) == []
    clock = ManualClock(1_800_000_000_000)
    with LogManager(out_dir, clock) as manager:
        assert manager.had_clean_shutdown
        assert manager.owner.cluster_id is not None
        log = manager.log("v0-gzip-lat", 0)
        end = log.log_end_offset
        log.append_as_leader(build_batch_v2([Record(0, clock.now_ms(), CREATE_TIME, None, b"new")]), leader_epoch=0)
    assert [record.value for record in records(out_dir, "v0-gzip-lat")][end:] == [b"new"]
    assert {"meta.properties", ".kafka_cleanshutdown", "recovery-point-offset-checkpoint"} <= {
        path.name for path in out_dir.iterdir()
    }


def test_gaps_transactions_producers_and_configuration(tmp_path: Path) -> None:
    """What a long life leaves: compacted away records, indexes that are gone, an aborted transaction, a topic still set to v1."""
    source, clock = tmp_path / "old", ManualClock(1_000_000)
    with LogManager(source, clock) as manager:
        manager.create_topic("t", 1, {"message.format.version": "0.10.0", "cleanup.policy": "compact"})
        manager.create_topic("other", 1)
    for path in (source / "t-0").glob("0*.*"):
        path.unlink()
    (source / "t-0").rename(tmp_path / "made")
    producer = Producer(7, 0, 0)
    builder = LogBuilder(source / "t-0", interval_bytes=64)
    builder.append(*(batch(5 * i, [1000 + i], magic=0) for i in range(40)))
    builder.append(
        batch(300, [5000, 4000, 4500], magic=1, codec=Codec.GZIP, step=3), batch(310, [1, 2], magic=1, append_time=6000)
    )
    builder.roll().append(batch(320, [7000, 7001], producer=producer, transactional=True))
    builder.roll().append(marker(322, 7002, ControlType.ABORT, 7)).close()
    for path in builder.directory.glob("*.timeindex"):
        path.unlink()
    for path in builder.directory.glob("*.txnindex"):
        path.unlink()
    (tmp_path / "made" / "partition.metadata").rename(source / "t-0" / "partition.metadata")
    (source / "log-start-offset-checkpoint").write_text("0\n2\nt 0 20\nother 0 0\n")
    os.utime(builder.file(0, ".log"), (1_300_000_000, 1_300_000_000))
    out_dir = tmp_path / "new"
    migrate(source, out_dir, "t")
    before, after = records(source, "t"), records(out_dir, "t")
    assert [record._replace(timestamp_type=max(record.timestamp_type, 0)) for record in before] == after
    assert [record.offset for record in after][:4] == [20, 25, 30, 35] and after[0].timestamp == -1
    assert faults(out_dir) == []
    assert (out_dir / "t-0" / f"{0:020}.log").stat().st_mtime == 1_300_000_000
    assert not (out_dir / "other-0").exists()
    assert list(read_topics(out_dir)) == ["t"] and read_topics(out_dir)["t"].properties == {"cleanup.policy": "compact"}
    with LogDir(out_dir).log("t", 0) as log:
        assert [(txn.producer_id, txn.first_offset) for txn in log.aborted_transactions(0, 1000)] == [(7, 320)]
        assert log.topic_id == read_topics(out_dir)["t"].topic_id
        answer = find_offset(log, 4600)
        assert answer is not None and answer.offset == 300
    with LogManager(out_dir, clock) as manager:
        log = manager.log("t", 0)
        assert 7 in {entry.producer_id for entry in log.producer_state.active_producers.values()}
        log.append_as_leader(build_batch_v2([Record(0, 9000, CREATE_TIME, b"k", b"v")]), leader_epoch=0)
    assert records(out_dir, "t")[-1].offset == 323


@examples(10, suppress_health_check=list(HealthCheck))
@given(
    happened=st.lists(steps(), min_size=1, max_size=25),
    indexes=st.sampled_from([frozenset({".index", ".timeindex"}), frozenset({".index"}), frozenset()]),
    segment_bytes=st.sampled_from([300, 2000]),
    max_segment_bytes=st.sampled_from([700, 1 << 30]),
    times=st.lists(st.integers(NOON - 2, NOON + 40), max_size=10),
)
def test_any_log_says_the_same(
    happened: list[dict[str, Any]], indexes: frozenset[str], segment_bytes: int, max_segment_bytes: int, times: list[int]
) -> None:
    with TemporaryDirectory() as folder:
        source, out_dir = Path(folder) / "old", Path(folder) / "new"
        builder = write(source, happened, segment_bytes=segment_bytes, indexes=indexes)
        builder.close()
        done = migrate(source, out_dir, max_segment_bytes=max_segment_bytes)
        expected = [replace(row, timestamp_type=max(row.timestamp_type, CREATE_TIME)) for row in builder.rows]
        assert rows_of(tidelog.scan(out_dir, builder.topic, columns=ROW_COLUMNS)) == plain(expected)
        assert faults(out_dir) == []
        with LogDir(source).log(builder.topic, 0, message_format=2) as old, LogDir(out_dir).log(builder.topic, 0) as new:
            assert new.log_end_offset == old.log_end_offset
            assert {header.magic for header in new.headers()} <= {2}
            assert new.high_watermark == new.log_end_offset
            aborted = [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in new.aborted_transactions(0, 1 << 40)]
            assert aborted == builder.aborted
            assert [find_offset(new, time) for time in times] == [find_offset(old, time) for time in times]
        assert sum(one.records for one in done) >= len(builder.rows)


def test_a_segment_that_outgrows_its_positions_is_split(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "old" / "t-0", interval_bytes=64)
    builder.append(*(batch(i, [1000 + i], magic=1, value=b"x" * 500) for i in range(200))).close()
    (done,) = migrate(tmp_path / "old", tmp_path / "new", max_segment_bytes=40_000)
    logs = sorted((tmp_path / "new" / "t-0").glob("*.log"))
    assert len(logs) == done.new_segments == 4 and all(path.stat().st_size <= 40_000 for path in logs)
    assert records(tmp_path / "new", "t") == records(tmp_path / "old", "t") and faults(tmp_path / "new") == []


@pytest.mark.parametrize("last", [True, False])
def test_a_torn_tail_is_told_and_other_damage_is_an_error(tmp_path: Path, last: bool, caplog: pytest.LogCaptureFixture) -> None:
    builder = LogBuilder(tmp_path / "old" / "t-0")
    builder.append(batch(0, [1000], magic=1)).roll().append(batch(1, [2000], magic=1), batch(2, [3000], magic=1)).close()
    path = builder.file(1 if last else 0, ".log")
    path.write_bytes(path.read_bytes()[:-3])
    if not last:
        with pytest.raises(CorruptBatchError):
            migrate(tmp_path / "old", tmp_path / "new")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["old"]
        return
    done = migrate(tmp_path / "old", tmp_path / "new")
    assert [one.torn_bytes for one in sorted(done, key=lambda one: one.base_offset)] == [0, path.stat().st_size // 2 - 1]
    assert "torn tail" in caplog.text
    assert [record.offset for record in records(tmp_path / "new", "t")] == [0, 1]
    assert faults(tmp_path / "new") == []


def test_what_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "old"
    LogBuilder(source / "t-0").append(batch(0, [1000], magic=1)).close()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for out_dir, text in (
        (source / "new", "is inside the old folder"),
        (tmp_path, "is inside the old folder"),
        (tmp_path / "full", "not empty"),
    ):
        with pytest.raises(InvalidArgumentError, match=text):
            begin(source, out_dir)
    with pytest.raises(UnknownTopicOrPartitionError):
        begin(source, tmp_path / "new", "nothing")
    migration = begin(source, tmp_path / "new")
    assert (tmp_path / "new.unfinished" / "t-0").is_dir() and not (tmp_path / "new").exists()
    with pytest.raises(InvalidArgumentError, match="did not finish"):
        begin(source, tmp_path / "new")
    abandon(migration)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "old"]
    (tmp_path / "new").mkdir()
    assert len(migrate(source, tmp_path / "new")) == 1
