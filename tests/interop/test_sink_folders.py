"""What the sink writes into a folder, judged by Apache Kafka 3.9.1, whose folder it is: same records, sound indexes, on it goes.

Without Spark: rows come as the tasks get them, and are committed as the driver does.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException

import tidelog
from tests.interop.rows import rows_of
from tests.kafka import Kafka391, dump_log_segments
from tests.kafka.clients import NewRow, consume, offset_for_time, offset_of_max_timestamp, produce, watermarks
from tests.kafka.tools import complaints
from tests.patience import PATIENCE_S
from tests.storage.crash_states import CrashStates
from tidelog.clock import ManualClock
from tidelog.formats.dir_lock import DirLock
from tidelog.spark.sink.folder_target import commit_to_folder, partition_counts
from tidelog.spark.sink.row_batches import RowBatches
from tidelog.spark.sink.sink_options import SinkOptions, parse_sink_options
from tidelog.spark.sink.spool import Spool
from tidelog.storage.folder.staged_write import finish_interrupted_writes
from tidelog.storage.folder.write_journal import COMMITTED_FILE, is_pending

T = 1_600_000_000_000
CLOCK = ManualClock(T)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 2


def options(directory: Path, **given: str) -> SinkOptions:
    return parse_sink_options({"path": str(directory), **given}, streaming=True).for_query("query")


def frame(epoch: int, rows: int) -> pa.RecordBatch:
    numbers = range(rows)
    return pa.record_batch(
        {
            "key": pa.array([None if n % 10 == 0 else f"key {n % 7}".encode() for n in numbers], pa.binary()),
            "value": pa.array([None if n % 50 == 0 else f"epoch {epoch} row {n} " + "abc" * (n % 30) for n in numbers]),
            "timestamp": pa.array([(T + epoch * 1000 + (n * 7919) % 3000) * 1000 for n in numbers], pa.timestamp("us", "UTC")),
            "headers": pa.array(
                [None if n % 3 else [{"key": "n", "value": b"%d" % n}, {"key": "none", "value": None}] for n in numbers],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
    )


def commit(chosen: SinkOptions, epoch: int, rows: int = 600) -> None:
    """One micro-batch of two tasks."""
    spooled = []
    for task in range(2):
        with partition_counts(chosen) as partitions, Spool(None, "test", epoch) as spool:
            made = RowBatches(frame(epoch, 0).schema, chosen, partitions)
            for key, batch in [*made.add(frame(epoch, rows).slice(task * rows // 2, rows // 2)), *made.finish()]:
                spool.add(key, batch)
            spooled.append(spool.finish())
    commit_to_folder(chosen, spooled, epoch, CLOCK)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka391]:
    """A broker with a topic a codec, records of its own in each, stopped."""
    with Kafka391(tmp_path_factory.mktemp("kafka")) as broker:
        for codec in (*CODECS, "crash"):
            broker.create_topic(
                codec, PARTITIONS, {"segment.bytes": "60000", "index.interval.bytes": "512", "retention.ms": "-1"}
            )
            for partition in range(PARTITIONS):
                produce(broker.bootstrap, codec, [NewRow(b"k", b"before %d" % n, T - 1000 + n) for n in range(100)], partition)
        broker.stop()
        yield broker


def start(broker: Kafka391) -> None:
    """Start, and wait until the broker serves: it may be reported late that it leads."""
    broker.start()
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            for topic in broker.topics:
                for partition in range(PARTITIONS):
                    watermarks(broker.bootstrap, topic, partition)
            return
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def values(broker: Kafka391, topic: str) -> list[bytes | None]:
    return [row.value for partition in range(PARTITIONS) for row in consume(broker.bootstrap, topic, partition)]


def test_kafka_serves_what_was_written_into_its_folder_and_goes_on(kafka: Kafka391) -> None:
    for codec in CODECS:
        chosen = options(kafka.data, topic=codec, compression=codec, batchSize="2000", transactionalId=codec)
        for epoch in range(3):
            commit(chosen, epoch)
        commit(chosen, 2)  # replayed
    wanted = [value for epoch in range(3) for value in texts(epoch, 600)]
    folders = [kafka.partition_folder(codec, partition) for codec in CODECS for partition in range(PARTITIONS)]
    files = sorted(path for folder in folders for path in folder.iterdir() if path.suffix in (".log", ".index", ".timeindex"))
    assert complaints(dump_log_segments(files, "--deep-iteration")) == []
    indexes = [path for path in files if path.suffix != ".log" and path.stat().st_size]
    checked = dump_log_segments(indexes, "--index-sanity-check")
    assert complaints(checked) == []
    assert checked.count("passed sanity check") == len(indexes)
    start(kafka)
    for codec in CODECS:
        before = [b"before %d" % n for n in range(100)] * PARTITIONS
        assert Counter(values(kafka, codec)) == Counter(before + wanted)
        for partition in range(PARTITIONS):
            rows = consume(kafka.bootstrap, codec, partition)
            assert rows == rows_of(tidelog.scan(kafka.data, codec, partitions=[partition]))
            assert [row.offset for row in rows] == list(range(len(rows)))
            with tidelog.LogDir(kafka.data).log(codec, partition) as log:
                for time_ms in (T - 950, T, T + 1234, T + 2500, T + 4999):
                    found = tidelog.find_offset(log, time_ms)
                    ours = (-1, -1) if found is None else (found.offset, found.timestamp)
                    assert ours == offset_for_time(kafka.admin, codec, partition, time_ms)
                largest = tidelog.find_offset(log, -3)
                assert largest is not None
                assert (largest.offset, largest.timestamp) == offset_of_max_timestamp(kafka.admin, codec, partition)
            produce(kafka.bootstrap, codec, [NewRow(b"k", b"after %d" % n, T + 9000 + n) for n in range(50)], partition)
            after = consume(kafka.bootstrap, codec, partition)
            assert after[: len(rows)] == rows
            assert [row.value for row in after[len(rows) :]] == [b"after %d" % n for n in range(50)]
    kafka.stop()


def test_kafka_opens_what_a_crash_left_half_moved(kafka: Kafka391, tmp_path: Path) -> None:
    """Kafka serves what is there, appends; then the write is finished, and Kafka serves every row once."""
    chosen = options(kafka.data, topic="crash")
    commit(chosen, 0)
    untouched = shutil.copytree(kafka.data, tmp_path / "untouched")
    with CrashStates(kafka.data, tmp_path / "states") as states:
        commit(chosen, 1, rows=60)
    halfway = [state for state in states.folders if (state / COMMITTED_FILE).exists() and moved(state) - moved(untouched) == 1]
    shutil.rmtree(kafka.data)
    shutil.copytree(halfway[0], kafka.data)
    start(kafka)
    for partition in range(PARTITIONS):
        produce(kafka.bootstrap, "crash", [NewRow(None, b"in between", T)], partition)
    assert values(kafka, "crash").count(b"in between") == PARTITIONS
    kafka.stop()
    assert is_pending(kafka.data)
    with DirLock(kafka.data):
        finish_interrupted_writes(kafka.data, CLOCK)
    start(kafka)
    assert Counter(values(kafka, "crash")) == Counter(
        [b"before %d" % n for n in range(100)] * PARTITIONS + texts(0, 600) + texts(1, 60) + [b"in between"] * PARTITIONS
    )
    kafka.stop()


def moved(directory: Path) -> int:
    """Return how many segments the topic has."""
    return len(list(directory.glob("crash-*/*.log")))


def texts(epoch: int, rows: int) -> list[bytes | None]:
    return [value and value.encode() for value in frame(epoch, rows).column("value").to_pylist()]
