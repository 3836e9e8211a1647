"""A Spark driver that reads and streams buckets with a key, and fails with another: a test searches its output for the key.

python -m tests.interop.object_storage_program ENDPOINT ADDRESS FOLDER DATA TIER < KEY_AND_SECRET

DATA are folders whose topic `orders` is tiered, TIER is its remote storage.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.spark.conftest import CONFIG
from tidelog.spark import session


def main(endpoint: str, address: str, folder: str, data: str, tier: str) -> None:
    key, secret = sys.stdin.read().split()
    here = Path(folder)
    (here / "events").mkdir()
    more = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (here / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.log.level": "INFO",
        "spark.sql.warehouse.dir": str(here / "warehouse"),
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.access.key": key,
        "spark.hadoop.fs.s3a.secret.key": secret,
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    spark = session("objects", master="local[2]", config=CONFIG | more)

    def load(**options: str) -> Any:
        return spark.read.format("tidelog").option("subscribe", "events").options(**options)

    both = [f"{address}/a", f"{address}/b"]
    frame = load().load(both)
    frame.explain("extended")
    print(frame, "by settings", frame.count(), flush=True)
    given = {"access_key_id": key, "secret_access_key": secret}
    print("by options", load(**given).load(",".join(both)).count(), "by pattern", load().load(f"{address}/*").count(), flush=True)
    tiered = load(subscribe="orders", tier=tier)
    print("tiered", sorted(row.offset for row in tiered.load(data).select("offset").collect()), flush=True)
    stream = spark.readStream.format("tidelog").option("subscribe", "events").option("startingOffsets", "earliest")
    query = (
        stream.options(**given)
        .load(",".join(both))
        .writeStream.format("parquet")
        .option("path", str(here / "out"))
        .option("checkpointLocation", str(here / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.explain(True)
    assert query.awaitTermination(300)
    print("progress", query.lastProgress, query.status, "streamed", spark.read.parquet(str(here / "out")).count(), flush=True)
    try:
        load(secret_access_key=f"not-{secret[::-1]}").load(both).count()
    except Exception as error:
        print("refused", error, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
