"""What `pipeline_bench` starts for each way to a session: times the session's start, its first query, and a full read.

python -m bench.children.session_child WAY SOURCE OPTIONS FULL CONFIG      OPTIONS, FULL, CONFIG: JSON objects

| way | |
|---|---|
| registered | `tidelog.spark.session()` |
| jar | PySpark's own builder, with the package's jar in `spark.jars` |
| plain | PySpark's own builder: nothing of Tidelog |

It prints one JSON line: seconds of the start, of the first query (a read with OPTIONS) and of a warm full read (FULL), and
whether the scan returns columns.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WARM_UPS, ROUNDS = 2, 3


def main(way: str, source: str, options: str, full: str, config: str) -> None:
    began = time.perf_counter()
    spark = start(way, json.loads(config))

    def load(given: str) -> DataFrame:
        return spark.read.format(source).options(**json.loads(given)).load()

    def seconds(given: str) -> float:
        before = time.perf_counter()
        load(given).write.format("noop").mode("overwrite").save()
        return time.perf_counter() - before

    try:
        found: dict[str, Any] = {"start_s": time.perf_counter() - began, "first_s": seconds(options)}
        reads = [seconds(full) for _ in range(WARM_UPS + ROUNDS)] if source == "tidelog" else []
        found["read_s"] = statistics.median(reads[WARM_UPS:]) if reads else None
        executed: Any = load(options)._jdf.queryExecution().executedPlan()
        found["has_columns"] = "ColumnarToRow" in str(executed.toString())
    finally:
        spark.stop()
    print(json.dumps(found))


def start(way: str, config: dict[str, Any]) -> SparkSession:
    from tidelog.spark import columns_jar, ensure_java, session

    if way == "registered":
        return session("bench", master="local[2]", config=config)
    from pyspark.sql import SparkSession

    # What a person has to do who does not use `session`.
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if way == "jar":
        config["spark.jars"] = ",".join(filter(None, (config.get("spark.jars"), str(columns_jar()))))
    return SparkSession.builder.master("local[2]").config(map=config).getOrCreate()


if __name__ == "__main__":
    main(*sys.argv[1:])
