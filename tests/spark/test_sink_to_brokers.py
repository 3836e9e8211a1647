"""`write` and `writeStream` to brokers in a real session: what librdkafka reads of Kafka 3.9.1 and Tidelog is each row once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import tidelog
from tests.kafka import Kafka391, why_not
from tests.kafka.clients import Row, consume, create_topics
from tidelog.records.kernel import murmur2

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 3
START_MS = 1_700_000_000_000
TIMEOUT_S = 180


@pytest.fixture(scope="module", params=["tidelog", "3.9.1"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp(request.param.replace(".", "-"))
    if request.param == "tidelog":
        # Records of long ago would go at the broker's first look.
        with tidelog.Broker(folder / "data", num_partitions=PARTITIONS, log_retention_ms=-1) as broker:
            yield broker.bootstrap_servers
        return
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with Kafka391(folder, {"num.partitions": str(PARTITIONS), "auto.create.topics.enable": "true"}) as kafka:
        yield kafka.bootstrap


def read(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[list[Row]]:
    """Return the rows of each partition."""
    return [consume(bootstrap, topic, number, isolation=isolation) for number in range(PARTITIONS)]


def numbers(partitions: list[list[Row]]) -> list[int]:
    return sorted(int(row.value or b"") for rows in partitions for row in rows)


def write(frame: DataFrame, bootstrap: str, **options: Any) -> None:
    frame.write.format("tidelog").options(**{"kafka.bootstrap.servers": bootstrap, **options}).mode("append").save()


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_batch_write(spark: SparkSession, bootstrap: str, guarantee: str) -> None:
    topic = f"batch-{guarantee}"
    frame = spark.range(0, 2000, 1, 3).selectExpr(
        "cast(id % 7 as string) key",
        "cast(id as string) value",
        f"timestamp_millis({START_MS} + id) timestamp",
        "array(named_struct('key', 'n', 'value', cast(cast(id as string) as binary))) headers",
    )
    write(frame, bootstrap, topic=topic, deliveryGuarantee=guarantee, compression="zstd")
    found = read(bootstrap, topic)  # the broker has created it
    assert numbers(found) == list(range(2000))
    for partition, rows in enumerate(found):
        for row in rows:
            value = row.value or b""
            assert (row.timestamp, row.headers) == (START_MS + int(value), (("n", value),))
            assert (murmur2(row.key or b"") & 0x7FFFFFFF) % PARTITIONS == partition


def test_a_task_that_fails(spark: SparkSession, bootstrap: str) -> None:
    """Exactly-once: nothing is there. At-least-once: what the other tasks have sent stays, as with the connector."""
    create_topics(bootstrap, {"failed": {}}, PARTITIONS)
    frame = spark.range(0, 100, 1, 2).selectExpr("if(id = 99, raise_error('by a test'), cast(id as string)) value")
    with pytest.raises(PySparkException, match="by a test"):
        write(frame, bootstrap, topic="failed", deliveryGuarantee="exactly-once")
    assert numbers(read(bootstrap, "failed", "read_uncommitted")) == []
    with pytest.raises(PySparkException, match="by a test"):
        write(frame, bootstrap, topic="failed")
    assert set(numbers(read(bootstrap, "failed", "read_uncommitted"))) <= set(range(99))


def test_a_task_that_is_killed_once_it_has_sent(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    """Its transaction is aborted, Spark's second attempt counts; neither goes through the driver."""
    topic, rows = f"killed-{bootstrap.rpartition(':')[2]}", 60_000
    create_topics(bootstrap, {topic: {}}, PARTITIONS)
    spark.range(0, rows, 1, 2).selectExpr("cast(id as string) value").write.parquet(str(tmp_path / "in"))

    def dies(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import signal
        import time

        from pyspark import TaskContext

        import tidelog

        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            yield batch
            # Each batch pushes the one before it through the buffers.
            if number == 2 and (context.partitionId(), context.attemptNumber()) == (0, 0):
                with tidelog.connect(bootstrap) as client:
                    while client.latest_offsets([(topic, 0)])[topic, 0] == 0:  # type: ignore[index]
                        time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)

    # A task writes to a partition of its own.
    frame = (
        spark.read.parquet(str(tmp_path / "in"))
        .mapInArrow(dies, "value string")
        .selectExpr(
            "value",
            "spark_partition_id() partition",
            "array(named_struct('key', 'h', 'value', cast(repeat('x', 1000) as binary))) headers",
        )
    )
    write(frame, bootstrap, topic=topic, deliveryGuarantee="exactly-once")
    assert numbers(read(bootstrap, topic)) == list(range(rows))
    assert len(read(bootstrap, topic, "read_uncommitted")[0]) > rows // 2


class Streamed:
    """A stream of Parquet files, one a micro-batch, into a topic."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path, topic: str) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.folder = folder
        self.topic = topic
        self.rows = 0
        create_topics(bootstrap, {topic: {}}, PARTITIONS)

    def grow(self, rows: int, files: int) -> None:
        """Add rows, counted on, in so many files."""
        frame = self.spark.range(self.rows, self.rows + rows, 1, files).selectExpr(
            "cast(id as string) key", "cast(id as string) value", f"timestamp_millis({START_MS} + id) timestamp"
        )
        frame.write.mode("append").parquet(str(self.folder / "in"))
        self.rows += rows

    def run(self, **options: Any) -> None:
        """Copy all that is there."""
        schema = "key string, value string, timestamp timestamp"
        rows = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(self.folder / "in"))
        target = {"topic": self.topic, "checkpointLocation": str(self.folder / "checkpoint"), **options}
        brokers = {"kafka.bootstrap.servers": self.bootstrap}
        query = rows.writeStream.format("tidelog").options(**target, **brokers).trigger(availableNow=True).start()
        if not query.awaitTermination(TIMEOUT_S):
            raise TimeoutError(f"the query runs for more than {TIMEOUT_S} s: {query.status}")

    @property
    def batches(self) -> int:
        return sum(path.name.isdigit() for path in (self.folder / "checkpoint" / "commits").iterdir())

    def forget_last_commit(self) -> None:
        """Leave the checkpoint as a driver does that dies right after the target's commit."""
        commits = self.folder / "checkpoint" / "commits"
        last = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
        last.unlink()
        (commits / f".{last.name}.crc").unlink()


def test_a_stream_through_replays(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    stream = Streamed(spark, bootstrap, tmp_path, "once")
    stream.grow(100, 3)
    stream.run()
    assert stream.batches == 3
    stream.forget_last_commit()
    stream.grow(20, 1)
    stream.run()
    found = read(bootstrap, stream.topic)
    assert numbers(found) == list(range(120))
    assert all(row.timestamp == START_MS + int(row.value or b"") for rows in found for row in rows)
    # Nothing was sent twice and aborted, either: a replay is known before.
    assert numbers(read(bootstrap, stream.topic, "read_uncommitted")) == list(range(120))


@pytest.mark.parametrize("bootstrap", ["tidelog"], indirect=True)
def test_a_stream_at_least_once_repeats_what_is_replayed(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    stream = Streamed(spark, bootstrap, tmp_path, "least")
    stream.grow(20, 1)
    stream.run(deliveryGuarantee="at-least-once")
    stream.forget_last_commit()
    stream.run(deliveryGuarantee="at-least-once")
    assert numbers(read(bootstrap, stream.topic)) == sorted([*range(20)] * 2)


@pytest.mark.parametrize("bootstrap", ["tidelog"], indirect=True)
def test_two_queries_with_one_transactional_id(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    """One after the other: each is known by its own query id, so nothing of the second is taken for a replay."""
    for number in range(2):
        stream = Streamed(spark, bootstrap, tmp_path / str(number), f"shared-{number}")
        stream.grow(10, 1)
        stream.run(transactionalId="shared")
        stream.forget_last_commit()
        stream.run(transactionalId="shared")
        assert numbers(read(bootstrap, stream.topic)) == list(range(10))
