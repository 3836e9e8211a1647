"""A program for a cluster whose executors have only the package; test_cluster runs it under spark-submit.

    spark-submit --master ... cluster_program.py DATA TOPIC BOOTSTRAP TARGET CHECKPOINT SPOOL OUT

It writes its results to `OUT` as JSON. It imports nothing from the tests, which executors do not have.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tidelog.spark import session


def main(data: str, topic: str, bootstrap: str, target: str, checkpoint: str, spool: str, out: str) -> None:
    spark = session("cluster")
    frame = spark.read.format("tidelog").option("path", data).option("subscribe", topic).load()
    seen = {
        "workers": sorted(spark.sparkContext.parallelize(range(4), 4).mapPartitions(where).distinct().collect()),
        "master": spark.sparkContext.master,
        "rows": sorted([row.partition, row.offset, text(row.value)] for row in frame.collect()),
    }
    stream = (
        spark.readStream.format("tidelog").option("path", data).option("subscribe", topic).option("startingOffsets", "earliest")
    )
    write = stream.option("maxOffsetsPerTrigger", "400").load().select("key", "value").writeStream.format("tidelog")
    query = (
        write.option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .option("spoolDir", spool)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    seen["batches"] = len([one for one in query.recentProgress if one.numInputRows])
    Path(out).write_text(json.dumps(seen))
    spark.stop()


def text(value: bytearray | None) -> str | None:
    return None if value is None else bytes(value).hex()


def where(_: Iterable[int]) -> Iterator[tuple[str, str]]:
    """Return an executor's Python and Tidelog."""
    import tidelog

    yield sys.executable, str(tidelog.__file__)


if __name__ == "__main__":
    main(*sys.argv[1:])
