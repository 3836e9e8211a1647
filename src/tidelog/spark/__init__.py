"""Reads, streams and writes Kafka logs in Spark, in files or on brokers, and runs jobs on them.

    from tidelog.spark import session

    spark = session("replay")                            # Java found, the source registered
    flights = (
        spark.read.format("tidelog")
        .option("path", "/var/lib/kafka/data")
        .option("subscribe", "departures")
        .option("startTime", "2013-07-10")               # exactly [startTime, endTime)
        .option("endTime", "2013-07-11")
        .load()
    )

With your own session, `register(spark)` registers the source, as PySpark's discovery does for an installed package, and passes
the number of cores to the source. `docs/spark.md` and `docs/streaming.md` have all options.
"""

from __future__ import annotations

from tidelog.spark.columnar import columns_jar
from tidelog.spark.java import ensure_java, find_java
from tidelog.spark.session import register, session

__all__ = ["columns_jar", "ensure_java", "find_java", "register", "session"]
