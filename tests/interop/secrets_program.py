"""A Spark driver that reads, streams and writes with a secured broker, and fails: a test searches its output for secrets.

python -m tests.interop.secrets_program BROKER FOLDER < PASSWORD
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.spark.conftest import CONFIG
from tidelog.spark import session

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def main(broker: str, folder: str) -> None:
    password = sys.stdin.read().strip()
    here = Path(folder)
    (here / "events").mkdir()
    more = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (here / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.log.level": "INFO",
        "spark.sql.warehouse.dir": str(here / "warehouse"),
    }
    spark = session("secrets", master="local[2]", config=CONFIG | more)

    def options(word: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": broker,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{MODULE} required username="alice" password="{word}";',
        }

    frame = spark.read.format("tidelog").options(**options(password)).option("subscribe", "events").load()
    frame.explain("extended")
    frame.explain("formatted")
    print(frame, frame.schema, "rows", frame.count(), flush=True)
    frame.createOrReplaceTempView("events")
    spark.sql("DESCRIBE EXTENDED events").show(truncate=False)
    spark.sql("EXPLAIN EXTENDED SELECT count(*) FROM events").show(truncate=False)
    out = spark.createDataFrame([(bytearray(b"k"), bytearray(b"v"))], "key BINARY, value BINARY")
    out.write.format("tidelog").options(**options(password)).option("topic", "events").mode("append").save()
    stream = spark.readStream.format("tidelog").options(**options(password)).option("subscribe", "events")
    query = (
        stream.option("startingOffsets", "earliest")
        .load()
        .writeStream.format("tidelog")
        .options(**options(password))
        .option("topic", "copied")
        .option("checkpointLocation", str(here / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.explain(True)
    assert query.awaitTermination(300)
    print("progress", query.lastProgress, query.status, flush=True)
    broken = {"kafka.sasl.jaas.config": f'{MODULE} required username="alice" password="{password}"'}
    for wrong in (options(f"not-{password}"), options(password) | broken):
        try:
            spark.read.format("tidelog").options(**wrong).option("subscribe", "events").load().count()
        except Exception as error:
            print("refused", error, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
