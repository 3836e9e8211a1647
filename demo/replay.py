"""The demo's replay on Spark: a delay report over the log's last three days, and a stream of these days into another folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROW = "carrier string, origin string, dest string, delay_minutes int"


def replay(log: Path, copy: Path) -> None:
    """Report on the last three days of the topic `departures`, then stream them into the folder `copy`."""
    from tidelog.model import MAX_TIMESTAMP
    from tidelog.reader import LogDir, find_offset
    from tidelog.spark import session
    from tidelog.times import format_time

    data = LogDir(log)
    newest = max(
        found.timestamp
        for partition in data.topics()["departures"]
        if (found := find_offset(data.log("departures", partition), MAX_TIMESTAMP)) is not None
    )
    start, end = newest - 3 * 86_400_000, newest + 1
    print(f"last three days: {format_time(start)} to {format_time(end)}")

    spark = session("flights of 2013", config={"spark.sql.shuffle.partitions": 2})
    try:
        delay_report(spark, log, start, end)
        stream(spark, log, start, copy)
    finally:
        spark.stop()


def delay_report(spark: SparkSession, log: Path, start: int, end: int) -> None:
    """Print departures, delays and cancellations by carrier, for the time range [start, end) in epoch ms."""
    from pyspark.sql import functions as f

    def read(topic: str) -> DataFrame:
        loaded = (
            spark.read.format("tidelog")
            .option("path", str(log))
            .option("subscribe", topic)
            .option("startTime", str(start))
            .option("endTime", str(end))
            .load()
        )
        return loaded.select(
            f.col("key").cast("string").alias("carrier"), f.from_json(f.col("value").cast("string"), ROW).alias("row")
        )

    left = (
        read("departures")
        .groupBy("carrier")
        .agg(
            f.count("*").alias("departures"),
            f.round(f.avg("row.delay_minutes"), 1).alias("mean delay"),
            f.expr("percentile(row.delay_minutes, 0.5)").cast("int").alias("median"),
            f.expr("percentile(row.delay_minutes, 0.9)").cast("int").alias("9 of 10 within"),
            f.max("row.delay_minutes").alias("worst"),
        )
    )
    cancelled = read("cancellations").groupBy("carrier").agg(f.count("*").alias("cancelled"))
    report = left.join(cancelled, "carrier", "left").fillna(0).orderBy(f.desc("departures"))
    rows = report.collect()
    header = [*report.columns]
    print("  " + "  ".join(f"{column:>14}" for column in header))
    for row in rows:
        print("  " + "  ".join(f"{value!s:>14}" for value in row))


def stream(spark: SparkSession, log: Path, start: int, copy: Path) -> None:
    """Copy the records from `start` (epoch ms) on as a stream: half a day of the log in each batch, each committed as a whole."""
    print("the same three days as a stream into another folder, at most twelve hours of log time per batch:")
    departures = (
        spark.readStream.format("tidelog")
        .option("path", str(log))
        .option("subscribe", "departures")
        .option("startTime", str(start))
        .option("maxTimePerTrigger", "12h")
        .load()
    )
    query = (
        departures.writeStream.format("tidelog")
        .option("path", str(copy))
        .option("partitions", "4")
        .option("checkpointLocation", str(copy.with_name("checkpoint")))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    for batch in query.recentProgress:
        print(f"  batch {batch.batchId}: {batch.numInputRows} departures")


if __name__ == "__main__":
    replay(Path(sys.argv[1]), Path(sys.argv[2]))
