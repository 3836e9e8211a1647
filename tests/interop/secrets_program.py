"""A Spark driver that reads, streams and writes with a secured broker and secured schema registries, and fails: a test searches
its output for secrets.

python -m tests.interop.secrets_program BROKER FOLDER < JSON

The JSON has the broker's `password`, and for each of the `typed` topics the options that decode its values, and the `wrong` ones.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path

from pyspark.sql import SparkSession

from tests.patience import PATIENCE_S
from tests.spark.conftest import CONFIG
from tidelog.spark import session

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def main(broker: str, folder: str) -> None:
    given = json.load(sys.stdin)
    password = given["password"]
    here = Path(folder)
    (here / "events").mkdir()
    more = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (here / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.log.level": "INFO",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
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
    for topic, decode in given["typed"].items():
        typed = {**options(password), "subscribe": topic, **decode}
        frame = spark.read.format("tidelog").options(**typed).load()
        frame.explain("extended")
        print(topic, frame, frame.schema, frame.selectExpr("sum(value.id)", "count(value)", "max(valueUndecoded)").collect())
        if decode["decode"] == "avro":
            stream = spark.readStream.format("tidelog").options(startingOffsets="earliest", **typed).load().select("value.id")
            place = {"path": str(here / topic), "checkpointLocation": str(here / f"{topic}-checkpoint")}
            query = stream.writeStream.format("parquet").options(**place).trigger(availableNow=True).start()
            query.explain(True)
            assert query.awaitTermination(300)
            print(topic, "streamed", spark.read.parquet(str(here / topic)).selectExpr("sum(id)").collect(), query.lastProgress)
        quoted = ", ".join(f"`{name}` '{value}'" for name, value in typed.items())
        spark.sql(f"CREATE TEMPORARY VIEW {topic} USING tidelog OPTIONS ({quoted})").explain(True)
        try:
            spark.read.format("tidelog").options(**{**typed, **given["wrong"][topic]}).load().count()
        except Exception as error:
            print("refused", error, repr(error), flush=True)
    show_pages(spark)
    broken = {"kafka.sasl.jaas.config": f'{MODULE} required username="alice" password="{password}"'}
    for wrong in (options(f"not-{password}"), options(password) | broken):
        try:
            spark.read.format("tidelog").options(**wrong).option("subscribe", "events").load().count()
        except Exception as error:
            print("refused", error, flush=True)
    spark.stop()


def show_pages(spark: SparkSession) -> None:
    """Print what Spark's pages show of the session and its queries."""
    address = spark.sparkContext.uiWebUrl
    rest = f"api/v1/applications/{spark.sparkContext.applicationId}"
    executions = json.loads(page(f"{address}/{rest}/sql?details=true&length=1000"))
    print(executions, page(f"{address}/{rest}/environment"))
    for path in ("environment/", "SQL/", "StreamingQuery/", *(f"SQL/execution/?id={one['id']}" for one in executions)):
        print(page(f"{address}/{path}"))


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        text: str = answer.read().decode()
    return text


if __name__ == "__main__":
    main(*sys.argv[1:])
