"""Spark's pipeline, Tidelog compared with Spark's Kafka connector: full reads, one per cent of the time, streams, a sink.

One run, one Spark session with two cores, one JVM, one broker of Apache Kafka 3.9.1. The broker is filled and left running; the
ways alternate, after warm-up rounds in which the JVM compiles, and the medians are compared.

| step | what is timed | the connector | Tidelog |
|---|---|---|---|
| range | one per cent of the topic's time into `noop`; first queries are shown | timestamp options | `startTime`, `endTime` |
| read | every record, all columns, into `noop` | from its broker | its folder; its port; the folder as rows |
| bucket | the same | from its broker | from a copy of the folder in S3Proxy, 20 ms away |
| stream | all records in five triggers (`availableNow`) into `noop`, from start to end of the query | from its broker | both |
| sink | a cached DataFrame of keys and values into a topic of the same broker | `write` | `write`; exactly once; `atomic` |
| session | a new session's first query (1 %), and a warm full read; shown only | its first query | three ways to a session |

The topic has two partitions, so that the connector, which gives a partition to a task, keeps both cores busy. Timestamps are a
millisecond apart and shuffled by half a minute: the oracle counts the records of the range, and missing records are shown. The
data is in the page cache for all.

The table also shows processor time, in microseconds per record: of the JVM, its Python workers and the broker. On a busy machine
it is the better measure; the ratio in processor time is shown too.

    python -m bench.pipeline_bench [--records 8000000] [--rounds 5] [--steps range,read,stream,sink,session,bucket] [--json]

`--records 1000000 --rounds 3` is a quick trial. Needs Java and Maven; its files are in bench/out and are removed at the end.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.interop.spark_connector import connector_settings
from tests.kafka.brokers import LONG_LIVED, Kafka391
from tests.kafka.jars import why_not
from tests.s3.server import S3Server

from bench.broker.processor_time import children_seconds, own_seconds
from bench.children.scratch import OUT
from tidelog.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "bench"
PARTITIONS = 2
KEY_BYTES = 7
VALUE_BYTES = 100
FIRST_MS = 1_373_414_400_000
SHUFFLE_MS = 30_000
WARM_UPS = 3
TRIGGERS = 5
SEGMENT_BYTES = 8 << 20
"""Many segments: a bucket is read by requests."""
LATENCY_S = 0.02
"""How long each request to the bucket waits."""
SINK_SHARE = 8
"""The share of the records that the sink writes."""

STEPS = ("range", "read", "stream", "sink", "session", "bucket")

TARGETS: dict[tuple[str, str], float] = {
    ("range", "folder"): 2.0,
    ("range", "broker"): 1.0,
    ("read", "folder"): 6.0,
    ("read", "broker"): 5.0,
    ("stream", "folder"): 4.0,
    ("stream", "broker"): 4.0,
    ("sink", "broker"): 2.0,
    ("bucket", "bucket"): 3.0,
}
"""The smallest allowed ratio of Tidelog's speed to the connector's."""

LABELS = {
    "connector": "Kafka connector 4.2.0",
    "folder": "Tidelog, folder",
    "broker": "Tidelog, host:port",
    "rows": "Tidelog, folder, as rows",
    "bucket": "Tidelog, bucket 20 ms away",
    "once": "Tidelog, exactly once",
    "atomic": "Tidelog, exactly once, atomic",
    "registered": "Tidelog, session()",
    "jar": "Tidelog, spark.jars",
    "plain": "Tidelog, plain session",
}


@dataclass
class Way:
    """One way to do one step, and its measurements."""

    run: Callable[[], object]
    """Runs the step once."""
    seconds: list[float] = field(default_factory=list)
    processor: list[tuple[float, float, float]] = field(default_factory=list)
    first_s: float = 0.0


class Bench:
    """A Spark session, a filled broker, and the ids of the processes to measure."""

    def __init__(self, spark: SparkSession, broker: Kafka391, records: int, rounds: int, folder: Path) -> None:
        self.spark, self.broker, self.records, self.rounds, self.folder = spark, broker, records, rounds, folder
        self.jvm_pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
        assert broker.process is not None
        self.broker_pid = broker.process.pid
        self.places = {
            "connector": ("kafka", {"kafka.bootstrap.servers": broker.bootstrap}),
            "folder": ("tidelog", {"path": str(broker.data)}),
            "broker": ("tidelog", {"kafka.bootstrap.servers": broker.bootstrap}),
        }

    def measure(self, step: str, ways: dict[str, Way], records: int) -> dict[str, Any]:
        """Run all ways in turn: `WARM_UPS` rounds, then the rounds that count. Return the table's figures."""
        for number in range(WARM_UPS + self.rounds):
            told = []
            for name, way in ways.items():
                before, began = self._processor(), time.perf_counter()
                way.run()
                seconds, after = time.perf_counter() - began, self._processor()
                told.append(f"{name} {seconds:.2f} s")
                if number == 0:
                    way.first_s = seconds
                if number >= WARM_UPS:
                    way.seconds.append(seconds)
                    jvm, workers, broker = (late - early for late, early in zip(after, before, strict=True))
                    way.processor.append((jvm, workers, broker))
            say(f"{step} {number + 1}{' (warms up)' if number < WARM_UPS else ''}: {', '.join(told)}")
        return {"step": step, "records": records, "ways": {name: self._result(way, records) for name, way in ways.items()}}

    def _processor(self) -> tuple[float, float, float]:
        return own_seconds(self.jvm_pid), children_seconds(self.jvm_pid), own_seconds(self.broker_pid)

    @staticmethod
    def _result(way: Way, records: int) -> dict[str, Any]:
        each = [statistics.median(column) / records * 1e6 for column in zip(*way.processor, strict=True)]
        return {
            "seconds": [round(second, 3) for second in way.seconds],
            "median_s": round(statistics.median(way.seconds), 3),
            "first_s": round(way.first_s, 3),
            "processor_us": {name: round(value, 3) for name, value in zip(("jvm", "python", "broker"), each, strict=True)},
        }

    def load(self, place: str, spark: SparkSession | None = None, **options: str) -> DataFrame:
        source, where = self.places[place]
        return (spark or self.spark).read.format(source).options(**where, subscribe=TOPIC, **options).load()

    def range_step(self, expected: int, start_ms: int, end_ms: int) -> dict[str, Any]:
        kafka = {"startingTimestamp": str(start_ms), "endingTimestamp": str(end_ms)}
        exact = {"startTime": str(start_ms), "endTime": str(end_ms)}

        def loaded(place: str) -> DataFrame:
            return self.load(place, **(kafka if place == "connector" else exact))

        def way(place: str) -> Way:
            return Way(lambda: loaded(place).write.format("noop").mode("overwrite").save())

        ways = {place: way(place) for place in self.places}
        # The one-time costs of a session's first query are not counted.
        self.spark.range(1000).write.format("noop").mode("overwrite").save()
        result = self.measure("range", ways, expected)
        for place in ways:
            time_is = f"timestamp >= timestamp_millis({start_ms}) AND timestamp < timestamp_millis({end_ms})"
            result["ways"][place]["rows"] = loaded(place).where(time_is).count()
        result["expected"] = expected
        return result

    def read_step(self) -> dict[str, Any]:
        for place in self.places:
            counted = self.load(place).count()
            if counted != self.records:
                raise RuntimeError(f"{place} counts {counted:,} of {self.records:,} records")

        by_rows = self.spark.newSession()
        by_rows.conf.set("spark.tidelog.columnarReads", "false")
        ways = {place: self._whole(place) for place in self.places} | {"rows": self._whole("folder", by_rows)}
        return self.measure("read", ways, self.records)

    def bucket_step(self) -> dict[str, Any]:
        with S3Server(self.folder / "s3") as server:
            address = server.upload(self.broker.data, "bench")
            self.places["bucket"] = ("tidelog", {"path": address} | server.options)
            server.front.latency_s = LATENCY_S
            result = self.measure("bucket", {place: self._whole(place) for place in ("connector", "bucket")}, self.records)
            say(f"at most {server.front.most_in_flight} requests in flight, {len(server.front.requests)} in all")
            counted = self.load("bucket").count()
        if counted != self.records:
            raise RuntimeError(f"the bucket counts {counted:,} of {self.records:,} records")
        return result

    def _whole(self, place: str, spark: SparkSession | None = None) -> Way:
        return Way(lambda: self.load(place, spark).write.format("noop").mode("overwrite").save())

    def stream_step(self) -> dict[str, Any]:
        a_trigger = str(-(-self.records // TRIGGERS))

        def way(place: str) -> Way:
            source, where = self.places[place]

            def run() -> None:
                checkpoint = tempfile.mkdtemp(prefix="checkpoint-", dir=self.folder)
                stream = self.spark.readStream.format(source).options(
                    **where, subscribe=TOPIC, startingOffsets="earliest", maxOffsetsPerTrigger=a_trigger
                )
                query = (
                    stream.load()
                    .writeStream.format("noop")
                    .option("checkpointLocation", checkpoint)
                    .trigger(availableNow=True)
                    .start()
                )
                query.awaitTermination()
                rows = sum(int(progress["numInputRows"]) for progress in query.recentProgress)
                if rows != self.records:
                    raise RuntimeError(f"the stream from {place} delivered {rows:,} of {self.records:,} records")

            return Way(run)

        return self.measure("stream", {place: way(place) for place in self.places}, self.records)

    def session_step(self, start_ms: int, end_ms: int) -> dict[str, Any]:
        """Start sessions in each way in turn. `median_s` is that of a warm full read, which the connector has in step `read`."""
        kafka = {"startingTimestamp": str(start_ms), "endingTimestamp": str(end_ms)}
        exact = {"startTime": str(start_ms), "endTime": str(end_ms)}
        found: dict[str, list[dict[str, Any]]] = {}
        for number in range(self.rounds):
            for way in ("connector", "plain", "jar", "registered"):
                source, where = self.places["connector" if way == "connector" else "folder"]
                full = where | {"subscribe": TOPIC}
                options = full | (kafka if way == "connector" else exact)
                given = [json.dumps(one) for one in (options, full, connector_settings())]
                command = [sys.executable, "-m", "bench.children.session_child", way, source, *given]
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
                found.setdefault(way, []).append(json.loads(done.stdout.splitlines()[-1]))
                say(f"session {number + 1}: {way} {found[way][-1]}")

        def median(way: str, name: str) -> float:
            return round(statistics.median(one[name] or 0.0 for one in found[way]), 3)

        ways = {
            way: {
                "median_s": median(way, "read_s"),
                "first_s": median(way, "first_s"),
                "start_s": median(way, "start_s"),
                "has_columns": all(one["has_columns"] for one in each),
                "processor_us": {"jvm": 0.0, "python": 0.0, "broker": 0.0},
            }
            for way, each in found.items()
        }
        return {"step": "session", "records": self.records, "ways": ways}

    def sink_step(self) -> dict[str, Any]:
        count = self.records // SINK_SHARE
        value = "concat(md5(cast(id AS string)), md5(cast(id + 1 AS string)), md5(cast(id + 2 AS string)), 'tide')"
        rows = self.spark.range(0, count, 1, PARTITIONS)
        rows = rows.selectExpr("cast(lpad(id, 7, '0') AS binary) AS key", f"cast({value} AS binary) AS value").cache()
        rows.count()
        servers = {"kafka.bootstrap.servers": self.broker.bootstrap}
        written = dict.fromkeys(("connector", "broker", "once", "atomic"), 0)

        def way(place: str, source: str, **options: str) -> Way:
            def run() -> None:
                rows.write.format(source).options(**servers, topic=f"sink-{place}", **options).mode("append").save()
                written[place] += count

            return Way(run)

        once = {"deliveryGuarantee": "exactly-once"}
        ways = {
            "connector": way("connector", "kafka"),
            "broker": way("broker", "tidelog"),
            "once": way("once", "tidelog", **once),
            "atomic": way("atomic", "tidelog", **once, atomic="true"),
        }
        for place in ways:
            self.broker.create_topic(f"sink-{place}", PARTITIONS)
        result = self.measure("sink", ways, count)
        for place, wanted in written.items():
            found = end_offsets(self.broker.bootstrap, f"sink-{place}")
            if not wanted <= found <= wanted + (WARM_UPS + self.rounds) * PARTITIONS * PARTITIONS * ("connector" not in place):
                raise RuntimeError(f"topic sink-{place} has {found:,} records, {wanted:,} were written")
        rows.unpersist()
        return result


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Spark's pipeline: Tidelog beside the Kafka connector")
    parser.add_argument("--records", type=int, default=8_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", default=",".join(STEPS), help="those to measure, with commas between")
    parser.add_argument("--json", action="store_true", help="print one JSON line instead of a table")
    options = parser.parse_args(arguments)
    steps = options.steps.split(",")
    if unknown := set(steps) - set(STEPS):
        parser.error(f"unknown steps: {', '.join(sorted(unknown))}; there are {', '.join(STEPS)}")
    reason = why_not()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 0
    results = run(options.records, options.rounds, steps)
    print(json.dumps(results) if options.json else table(results))
    return 0 if all(not missed(result) for result in results) else 1


def run(records: int, rounds: int, steps: list[str]) -> list[dict[str, Any]]:
    """Fill a topic, and measure the steps; one result each."""
    OUT.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="pipeline-", dir=OUT))
    start_ms = FIRST_MS + records * 40 // 100
    end_ms = start_ms + records // 100
    try:
        with Kafka391(folder, heap_mb=1024, java_options=LONG_LIVED) as broker:
            broker.create_topic(TOPIC, PARTITIONS, segment_bytes=SEGMENT_BYTES)
            say(f"producing {records:,} records of {KEY_BYTES} + {VALUE_BYTES} bytes ...")
            expected = fill(broker.bootstrap, records, start_ms, end_ms)
            spark = start_session()
            try:
                bench = Bench(spark, broker, records, rounds, folder)
                measured = {
                    "range": lambda: bench.range_step(expected, start_ms, end_ms),
                    "read": bench.read_step,
                    "stream": bench.stream_step,
                    "sink": bench.sink_step,
                    "session": lambda: bench.session_step(start_ms, end_ms),
                    "bucket": bench.bucket_step,
                }
                return [measured[step]() for step in steps]
            finally:
                spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fill(bootstrap: str, records: int, start_ms: int, end_ms: int) -> int:
    """Produce uncompressed at librdkafka's full speed; return how many timestamps are in [start_ms, end_ms)."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 500_000, "log_level": 0}
    )
    chance = random.Random(7)
    noise = chance.randbytes(VALUE_BYTES + 4096)
    expected = 0
    for number in range(records):
        start = number % 4096
        key, value = b"%07d" % (number % 10**KEY_BYTES), noise[start : start + VALUE_BYTES]
        timestamp_ms = FIRST_MS + number + int(chance.random() * SHUFFLE_MS) - SHUFFLE_MS // 2
        expected += start_ms <= timestamp_ms < end_ms
        while True:
            try:
                producer.produce(TOPIC, value, key, number % PARTITIONS, timestamp=timestamp_ms)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    if left:
        raise RuntimeError(f"{left} records were not acknowledged")
    return expected


def end_offsets(bootstrap: str, topic: str) -> int:
    """Return the sum of a topic's end offsets: the number of its records, if nothing was deleted and nothing is transactional."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 0})
    try:
        ends = (consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30) for number in range(PARTITIONS))
        return sum(end for _, end in ends)
    finally:
        consumer.close()


def start_session() -> SparkSession:
    """Return a session as `tidelog.spark.session` makes it, with the settings that docs/spark.md recommends for full reads."""
    config = connector_settings() | {
        "spark.driver.memory": "2g",
        # The connector does not use such a socket.
        "spark.python.unix.domain.socket.enabled": "true",
    }
    return session("bench", master="local[2]", config=config, unchecked_arrow=True)


def ratio(result: dict[str, Any], way: str) -> float:
    """Return the connector's time divided by a way's time."""
    return float(result["ways"]["connector"]["median_s"] / result["ways"][way]["median_s"])


def processor_ratio(result: dict[str, Any], way: str) -> float:
    """Return the connector's processor time divided by a way's processor time, both including the broker's."""
    used = {name: sum(result["ways"][name]["processor_us"].values()) for name in ("connector", way)}
    return float(used["connector"] / max(used[way], 1e-9))


def missed(result: dict[str, Any]) -> list[str]:
    """Return the targets that a step's result does not meet."""
    short = [way for (step, way), target in TARGETS.items() if step == result["step"] and ratio(result, way) < target]
    if "expected" in result:
        short += [way for way in ("folder", "broker") if result["ways"][way]["rows"] != result["expected"]]
    return short


def table(results: list[dict[str, Any]]) -> str:
    lines = [f"{'':<32}{'median':>9}{'first':>9}{'ratio':>8}{'target':>8}{'CPU us/record: JVM, Python, broker':>38}{'ratio':>8}"]
    for result in results:
        lines.append(f"{result['step']}, {result['records']:,} records")
        if result["step"] == "session":
            for name, way in result["ways"].items():
                told = f"starts in {way['start_s']:.2f} s, {'columns' if way['has_columns'] else 'rows'}"
                lines.append(f"  {LABELS[name]:<30}{way['median_s']:>8.2f}s{way['first_s']:>8.2f}s   {told}")
            continue
        for name, way in result["ways"].items():
            jvm, python, broker = way["processor_us"].values()
            compared = f"{'':>16}"
            of_processor = ""
            if name != "connector":
                target = TARGETS.get((result["step"], name))
                compared = f"{ratio(result, name):>7.2f}x{'' if target is None else f'{target:.2f}x':>8}"
                of_processor = f"{processor_ratio(result, name):>7.2f}x"
            rows = f"   {way['rows']:,} of {result['expected']:,} rows" if "expected" in result else ""
            costs = f"{jvm:.2f}, {python:.2f}, {broker:.2f}"
            seconds = f"{way['median_s']:>8.2f}s{way['first_s']:>8.2f}s"
            lines.append(f"  {LABELS[name]:<30}{seconds}{compared}{costs:>38}{of_processor}{rows}")
        if short := missed(result):
            lines.append(f"  below target: {', '.join(LABELS[name] for name in short)}")
    return "\n".join(lines)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
