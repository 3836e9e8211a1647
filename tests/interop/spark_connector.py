"""Uses Spark's own Kafka connector by time; test_spark_connector runs it in its own process.

    python -m tests.interop.spark_connector BOOTSTRAP SOURCE_TOPIC SINK_TOPIC FROM_MS TO_MS FOLDER

It writes `FOLDER/answers.json` with the rows of each step as [partition, offset, timestamp in ms, timestampType, key, value,
headers].
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from tests.kafka.jars import jars
from tidelog.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONNECTOR = "spark-sql-kafka-4.2.0"


def main(bootstrap: str, source: str, sink: str, from_ms: str, to_ms: str, folder: str) -> None:
    spark = start_session()
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": source, "includeHeaders": "true"}
    answers: dict[str, Any] = {}
    try:

        def read(**more: str) -> DataFrame:
            return spark.read.format("kafka").options(**options, **more).load()

        answers["all"] = rows(read())
        answers["range"] = rows(read(startingTimestamp=from_ms, endingTimestamp=to_ms))
        # Partition 0 from a time on, partition 1 up to one; -2 is the beginning, -1 the end.
        answers["each"] = rows(
            read(
                startingOffsetsByTimestamp=json.dumps({source: {"0": int(from_ms), "1": 0}}),
                endingOffsetsByTimestamp=json.dumps({source: {"0": int(to_ms) + 10**9, "1": int(to_ms)}}),
            )
        )
        late = {"startingTimestamp": str(int(to_ms) + 10**9)}
        answers["none"] = rows(read(**late, startingOffsetsByTimestampStrategy="latest"))
        try:
            answers["refused"] = rows(read(**late))
        except PySparkException as error:
            answers["refused"] = str(error)
        answers["streamed"] = [stream(spark, options, sink, from_ms, folder)]
        # More records arrive; the same query continues where it ended.
        append(read(endingTimestamp=from_ms), bootstrap, source)
        answers["streamed"].append(stream(spark, options, sink, from_ms, folder))
        answers["appended"] = rows(read())[len(answers["all"]) :]
    finally:
        spark.stop()
    Path(folder, "answers.json").write_text(json.dumps(answers))


def connector_settings() -> dict[str, str]:
    """Return the configuration for a quiet session on the loopback address with both the connector and our source."""
    return {
        "spark.jars": ",".join(str(jar) for jar in sorted(jars(CONNECTOR).glob("*.jar"))),
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }


def start_session() -> SparkSession:
    config = connector_settings() | {
        "spark.driver.memory": "512m",
        "spark.sql.shuffle.partitions": "1",
        # The JVM lives for seconds, so fast compilation matters more than optimized code.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    return session("connector", master="local[2]", config=config)


def rows(frame: DataFrame) -> list[list[Any]]:
    """All of it, in the order of partitions and offsets."""
    seen = frame.select("partition", "offset", f.unix_millis("timestamp").alias("ms"), "timestampType", "key", "value", "headers")
    return [
        [
            row.partition,
            row.offset,
            row.ms,
            row.timestampType,
            text(row.key),
            text(row.value),
            [[header.key, text(header.value)] for header in row.headers or ()],
        ]
        for row in seen.orderBy("partition", "offset").collect()
    ]


def stream(spark: SparkSession, options: dict[str, str], sink: str, from_ms: str, folder: str) -> int:
    """Copy the existing records from a time on to another topic, and return their number."""
    frame = spark.readStream.format("kafka").options(**options, startingTimestamp=from_ms, maxOffsetsPerTrigger="120").load()
    write = frame.select("key", "value", "headers", "partition").writeStream.format("kafka")
    query = (
        write.option("kafka.bootstrap.servers", options["kafka.bootstrap.servers"])
        .option("topic", sink)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(int(progress["numInputRows"]) for progress in query.recentProgress)


def append(frame: DataFrame, bootstrap: str, topic: str) -> None:
    """Write records to a topic again, in a batch query."""
    write = frame.select("key", "value", "headers", "partition").write.format("kafka")
    write.option("kafka.bootstrap.servers", bootstrap).option("topic", topic).save()


def text(data: bytes | None) -> str | None:
    return None if data is None else bytes(data).decode()


if __name__ == "__main__":
    main(*sys.argv[1:])
