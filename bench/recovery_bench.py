"""Recovery after a crash that leaves only the `.log` files, without indexes, snapshots or checkpoints. Compared with Kafka 3.9.1.

A topic of four partitions is filled with batches of one size, as several idempotent producers write them (each with its id and
its sequence, in random turns). Then both start on the same folder, in turn: Tidelog's `LogManager` and a broker, with the same
number of recovery threads. Kafka's time is the one in its log ("Loaded 4 logs in N ms"), with the JVM options of its start
script; Tidelog's is `startup()`. Neither includes the process start. The indexes must be identical.

    python -m bench.recovery_bench [--gb 4.3] [--runs 3] [--batch-bytes 1024 16384] [--threads 1 2] [--min-ratio 3] [--json]

`--gb 0.5 --runs 1` is a quick trial. Needs Java and Maven (without: `--core`, Tidelog alone). Its files are in bench/out and are
removed at the end. The files are in the page cache for both if there is memory for them.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import re
import shutil
import statistics
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.kafka.brokers import Kafka391
from tests.kafka.jars import why_not

from bench.children.scratch import scratch
from tidelog.clock import SystemClock
from tidelog.formats.names import file_name
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.kernel import CRC32C, crc32c
from tidelog.records.records import Record
from tidelog.storage.log_manager import LogManager

OUT = scratch("recovery")
TOPIC = "bench"
PARTITIONS = 4
PRODUCERS = 8
FIRST_MS = 1_700_000_000_000
RECORD_BYTES = 100
SEGMENT_BYTES = 1 << 30
WRITE_BYTES = 8 << 20

JAVA_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:-UsePerfData",
)
HEAP_MB = 1024
LOG4J = """\
log4j.rootLogger=WARN, stdout
log4j.logger.kafka.log.LogManager=INFO
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
"""
LOADED = re.compile(r"Loaded (\d+) logs in (\d+) ?ms")
KEPT = {"partition.metadata"}
GONE_CHECKPOINTS = "*-checkpoint"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="recovery of a data folder without its indexes, against Kafka 3.9.1")
    parser.add_argument("--gb", type=float, default=4.3, help="bytes of all logs, in units of 10^9")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--batch-bytes", type=int, nargs="+", default=[1024, 16384])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--min-ratio", type=float, default=3.0, help="end with 1 below this ratio")
    parser.add_argument("--core", action="store_true", help="Tidelog alone")
    parser.add_argument("--json", action="store_true", help="print one JSON line instead of a table")
    options = parser.parse_args(arguments)
    reason = None if options.core else why_not()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 0
    logging.getLogger("tidelog.storage").setLevel(logging.ERROR)  # The topic's configuration is unknown; this is expected.
    results = []
    for batch_bytes in options.batch_bytes:
        results += run(batch_bytes, options.gb, options.threads, options.runs, with_kafka=not options.core)
    print(json.dumps(results) if options.json else table(results))
    ratios = [result["ratio"] for result in results if "ratio" in result]
    return 0 if all(ratio >= options.min_ratio for ratio in ratios) else 1


def run(batch_bytes: int, gb: float, threads: list[int], runs: int, *, with_kafka: bool) -> list[dict[str, Any]]:
    """Time both in turn on logs with batches of one size; return the median GB/s for each number of threads."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    try:
        log4j = OUT / "log4j.properties"
        log4j.write_text(LOG4J)
        options = (*JAVA_OPTIONS, f"-Dlog4j.configuration={log4j.as_uri()}")
        broker = Kafka391(OUT / "kafka", heap_mb=HEAP_MB, java_options=options)
        if with_kafka:
            broker.start()
            broker.create_topic(TOPIC, PARTITIONS, {"retention.ms": "-1"})
            broker.stop()
        folders = [broker.partition_folder(TOPIC, partition) for partition in range(PARTITIONS)]
        size = sum(fill(folder, int(gb * 1e9 / PARTITIONS), batch_bytes, seed) for seed, folder in enumerate(folders))
        results = []
        for count in threads:
            ours: list[float] = []
            kafkas: list[float] = []
            for _ in range(runs):
                crash(broker.data)
                ours.append(tidelog_s(broker.data, count))
                if with_kafka:
                    indexes = indexes_of(folders)
                    crash(broker.data)
                    kafkas.append(kafka_s(broker, count))
                    if indexes_of(folders) != indexes:
                        raise RuntimeError("the two made different indexes")
            result = {"batch_bytes": batch_bytes, "bytes": size, "threads": count, "crc32c": CRC32C, "tidelog_s": ours}
            result["tidelog_gb_s"] = size / statistics.median(ours) / 1e9
            if with_kafka:
                result["kafka_s"] = kafkas
                result["kafka_gb_s"] = size / statistics.median(kafkas) / 1e9
                result["ratio"] = statistics.median(kafkas) / statistics.median(ours)
            results.append(result)
        return results
    finally:
        shutil.rmtree(OUT, ignore_errors=True)


# --- the logs


def fill(folder: Path, size_bytes: int, batch_bytes: int, seed: int) -> int:
    """Write segments of about `size_bytes` in total; return their size."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.log"):
        path.unlink()
    written = 0
    base_offset, in_segment = 0, 0
    piece = bytearray()
    for next_offset, batch in batches(batch_bytes, seed):
        if in_segment + len(batch) > SEGMENT_BYTES or written + in_segment + len(batch) > size_bytes:
            append(folder, base_offset, piece)
            written += in_segment
            base_offset, in_segment, piece = next_offset, 0, bytearray()
            if written + len(batch) > size_bytes:
                return written
        piece += batch
        in_segment += len(batch)
        if len(piece) >= WRITE_BYTES:
            append(folder, base_offset, piece)
            piece = bytearray()
    raise AssertionError("batches never end")


def append(folder: Path, base_offset: int, data: bytearray) -> None:
    with (folder / file_name(base_offset, ".log")).open("ab") as file:
        file.write(data)


def batches(batch_bytes: int, seed: int) -> Iterator[tuple[int, bytearray]]:
    """Yield batches of exactly that many bytes, each with its first offset, from several producers in random turns."""
    chance = random.Random(seed)
    batch = template(batch_bytes, chance)
    view = memoryview(batch)
    count = struct.unpack_from(">i", batch, 57)[0]
    sequences = [0] * PRODUCERS
    offset = 0
    while True:
        producer = chance.randrange(PRODUCERS)
        timestamp = FIRST_MS + offset + chance.randrange(1000)
        struct.pack_into(">q", batch, 0, offset)
        struct.pack_into(">qqqhi", batch, 27, timestamp, timestamp + count - 1, 1000 + producer, 0, sequences[producer])
        struct.pack_into(">I", batch, 17, crc32c(view[21:]))
        yield offset, batch
        sequences[producer] = (sequences[producer] + count) % 2**31
        offset += count


def template(batch_bytes: int, chance: random.Random) -> bytearray:
    """Return a batch of records of random bytes; the last record fills the batch to the required size."""
    values = [chance.randbytes(RECORD_BYTES) for _ in range(max(1, (batch_bytes - 200) // (RECORD_BYTES + 10)))]
    for last_bytes in range(batch_bytes):
        records = [Record(i, FIRST_MS + i, 0, None, value) for i, value in enumerate([*values, bytes(last_bytes)])]
        batch = build_batch_v2(records, leader_epoch=0, producer=Producer(1000, 0, 0))
        if len(batch) == batch_bytes:
            return batch
    raise ValueError(f"no batch of exactly {batch_bytes} bytes")


def crash(data: Path) -> None:
    """Remove everything except what the worst crash leaves: logs, and the ids of topic and folder."""
    (data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    for path in data.glob(GONE_CHECKPOINTS):
        path.unlink()
    for path in data.glob("*/*"):
        if path.suffix != ".log" and path.name not in KEPT:
            path.unlink()


def indexes_of(folders: list[Path]) -> dict[str, bytes]:
    """Return the contents of the indexes, without the zeros after the last entry in preallocated files."""
    paths = [path for folder in folders for path in folder.iterdir() if path.suffix in (".index", ".timeindex")]
    return {f"{path.parent.name}/{path.name}": path.read_bytes().rstrip(b"\0") for path in paths}


# --- the two


def tidelog_s(data: Path, threads: int) -> float:
    """Start Tidelog on the folder; return how long that took. Raises RuntimeError if a partition is offline."""
    manager = LogManager(data, SystemClock(), properties={"num.recovery.threads.per.data.dir": threads})
    began = time.perf_counter()
    manager.startup()
    took = time.perf_counter() - began
    offline = [key for key, log in manager.logs.items() if log.is_offline]
    if offline:
        raise RuntimeError(f"not loaded: {offline}")
    manager.shutdown()
    return took


def kafka_s(broker: Kafka391, threads: int) -> float:
    """Start the broker on the folder and kill it; return the load time in its log."""
    broker.properties["num.recovery.threads.per.data.dir"] = str(threads)
    output = broker.folder / "broker.out"
    before = len(LOADED.findall(output.read_text(errors="replace")))
    broker.start()
    broker.kill()
    count, milliseconds = LOADED.findall(output.read_text(errors="replace"))[before:][0]
    if int(count) < PARTITIONS:
        raise RuntimeError(f"Kafka loaded {count} logs")
    return int(milliseconds) / 1000


def table(results: list[dict[str, Any]]) -> str:
    lines = ["Recovery with every index gone, medians of GB/s"]
    for result in results:
        line = f"  {result['bytes'] / 1e9:.1f} GB in batches of {result['batch_bytes']:>6,} bytes, {result['threads']} threads"
        line += f"   Tidelog {result['tidelog_gb_s']:6.2f}"
        if "ratio" in result:
            line += f"   Kafka {result['kafka_gb_s']:6.2f}   {result['ratio']:.1f} times"
        lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
