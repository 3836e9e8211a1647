"""Spark, all columns of a topic into the `noop` sink: from the folder by Tidelog, and from its broker by Spark's Kafka connector.

One run, one Spark session with two cores, one JVM: a broker of Apache Kafka 3.9.1 is started, filled, and left running;
then both read the same topic in turn, two warm-up reads each (the JVM compiles) and five rounds, and the medians are
compared. The topic has two partitions, so that the connector, which gives a partition to a task, keeps both cores busy
too. The data is in the page cache for both. What the broker needs to serve the connector is part of the connector's
time: there is no other way to read with it.

    python -m bench.spark_bench [--records 8000000] [--rounds 5] [--min-ratio 3]

Needs Java and Maven; everything it makes lies in bench/out and is removed at the end.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from tests.kafka.brokers import LONG_LIVED, Kafka391
from tests.kafka.jars import JARS, classpath, why_not

from tidelog.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OUT = Path(__file__).parent / "out"
TOPIC = "bench"
PARTITIONS = 2
WARM_UPS = 2
KEY_BYTES = 7
VALUE_BYTES = 100
CONNECTOR = "spark-sql-kafka-4.2.0"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Spark: Tidelog from a folder against the Kafka connector from its broker")
    parser.add_argument("--records", type=int, default=8_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--min-ratio", type=float, default=3.0, help="end with 1 below this ratio")
    parser.add_argument("--json", action="store_true", help="print one JSON line instead of a table")
    options = parser.parse_args(arguments)
    reason = why_not()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 0
    result = run(options.records, options.rounds)
    print(json.dumps(result) if options.json else table(result))
    return 0 if result["ratio"] >= options.min_ratio else 1


def run(records: int, rounds: int) -> dict[str, Any]:
    """Fill a topic, read it both ways `rounds` times in turn; seconds of each round, medians, records a second, the ratio."""
    OUT.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="spark-", dir=OUT))
    try:
        with Kafka391(folder, heap_mb=1024, java_options=LONG_LIVED) as broker:
            broker.create_topic(TOPIC, PARTITIONS)
            say(f"producing {records:,} records of {KEY_BYTES} + {VALUE_BYTES} bytes ...")
            fill(broker.bootstrap, records)
            spark = start_session()
            try:
                return measure(spark, broker.data, broker.bootstrap, records, rounds)
            finally:
                spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fill(bootstrap: str, records: int) -> None:
    """Produce uncompressed, as fast as librdkafka goes; timestamps a millisecond apart."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 500_000, "log_level": 0}
    )
    noise = random.Random(7).randbytes(VALUE_BYTES + 4096)
    first_ms = 1_373_414_400_000
    for number in range(records):
        start = number % 4096
        key, value = b"%07d" % (number % 10**KEY_BYTES), noise[start : start + VALUE_BYTES]
        while True:
            try:
                producer.produce(TOPIC, value, key, number % PARTITIONS, timestamp=first_ms + number)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    if left:
        raise RuntimeError(f"{left} records were not acknowledged")


def start_session() -> SparkSession:
    classpath(CONNECTOR)
    jars = ",".join(str(jar) for jar in sorted((JARS / CONNECTOR).glob("*.jar")))
    config = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # The two settings that docs/spark.md recommends for full reads; the connector passes neither Arrow nor Python.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.driver.extraJavaOptions": "-Darrow.enable_unsafe_memory_access=true",
    }
    return session("bench", master="local[2]", config=config)


def measure(spark: SparkSession, data: Path, bootstrap: str, records: int, rounds: int) -> dict[str, Any]:
    def tidelog() -> DataFrame:
        return spark.read.format("tidelog").option("path", str(data)).option("subscribe", TOPIC).load()

    def connector() -> DataFrame:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC}
        return spark.read.format("kafka").options(**options).load()

    ways: dict[str, Callable[[], DataFrame]] = {"tidelog": tidelog, "connector": connector}
    for name, load in ways.items():
        counted = load().count()
        if counted != records:
            raise RuntimeError(f"{name} counts {counted:,} of {records:,} records")
        for _ in range(WARM_UPS):
            read(load)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name, load in ways.items():
            seconds[name].append(read(load))
        say(f"round {number + 1}: " + ", ".join(f"{name} {taken[-1]:.2f} s" for name, taken in seconds.items()))
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    return {
        "what": "Spark, all columns into noop",
        "records": records,
        "seconds": {name: [round(second, 3) for second in taken] for name, taken in seconds.items()},
        "median_seconds": {name: round(median, 3) for name, median in medians.items()},
        "records_per_second": {name: round(records / median) for name, median in medians.items()},
        "ratio": round(medians["connector"] / medians["tidelog"], 2),
    }


def read(load: Callable[[], DataFrame]) -> float:
    """Return the seconds from `load` to the last row in the sink."""
    began = time.perf_counter()
    load().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def table(result: dict[str, Any]) -> str:
    lines = [f"{result['what']}, {result['records']:,} records, medians of {len(result['seconds']['tidelog'])}"]
    for name, label in (("tidelog", "Tidelog, from the folder"), ("connector", "Kafka connector 4.2.0, from its broker")):
        rate = result["records_per_second"][name] / 1e6
        lines.append(f"  {label:<40} {result['median_seconds'][name]:7.2f} s  {rate:6.2f} M records/s")
    lines.append(f"  {'ratio':<40} {result['ratio']:7.2f} x")
    return "\n".join(lines)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
