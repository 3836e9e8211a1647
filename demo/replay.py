"""The demo's replay: the last three days of the log as a delay report, on Spark."""

from __future__ import annotations

import sys
from pathlib import Path

ROW = "carrier string, origin string, dest string, delay_minutes int"


def delay_report(log: Path) -> None:
    """Print departures, delays and cancellations by carrier over the last three days of the topic `departures`."""
    from pyspark.sql import functions as f

    from tidelog.log.log_dir import LogDir
    from tidelog.log.time_search import MAX_TIMESTAMP, find_offset
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

    spark = session("flights of 2013")
    try:

        def read(topic: str):  # type: ignore[no-untyped-def]
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
    finally:
        spark.stop()
    header = [*report.columns]
    print("  " + "  ".join(f"{column:>14}" for column in header))
    for row in rows:
        print("  " + "  ".join(f"{value!s:>14}" for value in row))


if __name__ == "__main__":
    delay_report(Path(sys.argv[1]))
