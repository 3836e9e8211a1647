"""Scanning a log into Arrow, compared with aiokafka's C reader: the same file, the same columns, one core, one run.

| file | where such a file comes from |
|---|---|
| 16 KiB batches | a producer with the default batch.size, no compression |
| 1 MiB batches | a producer tuned for throughput, or an import |
| lz4 | 128 KiB batches, compressed |

Records have a 7-byte key and a value of 84 bytes, no headers. Both sides read the file, check every batch's checksum, and make
Arrow batches of offset, timestamp, key and value. aiokafka returns an object per record, so there the columns are lists that
pyarrow converts, 16,384 rows at a time. The sides alternate, so that a noisy neighbour affects both; medians are compared.
Targets apply to the uncompressed files; the compressed file is for information.

    python -m bench.scan_bench [--rounds 5] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from aiokafka.record.memory_records import MemoryRecords

import tidelog
from tidelog.clock import SystemClock
from tidelog.config import LogConfig
from tidelog.records import kernel
from tidelog.records.batch import read_header
from tidelog.records.builder import binary_column, build_batch_v2_from_columns
from tidelog.records.compression import Codec
from tidelog.storage.segment.log_segment import LogSegment

RECORDS = 1_000_000
TOPIC = "bench"
COLUMNS = ["offset", "timestamp", "key", "value"]
WORDS = [b"alder", b"birch", b"cedar", b"ebony", b"fir", b"hazel", b"larch", b"maple", b"oak", b"pine", b"rowan", b"willow"]
FILES = (("16 KiB batches", 165, Codec.NONE), ("1 MiB batches", 10_500, Codec.NONE), ("lz4, 128 KiB", 1_300, Codec.LZ4))
TARGETS = {"aiokafka": 1.0, "tidelog, binary": 4.0, "tidelog, views": 8.0}


def write_log(data_dir: Path, records_a_batch: int, codec: Codec) -> Path:
    """Write one segment of RECORDS records; return its `.log`."""
    chance = random.Random(1)
    directory = data_dir / f"{TOPIC}-0"
    directory.mkdir(parents=True)
    segment = LogSegment.open(directory, 0, LogConfig(), SystemClock())
    for base in range(0, RECORDS, records_a_batch):
        count = min(records_a_batch, RECORDS - base)
        timestamps = array("q", [1_600_000_000_000 + 3 * (base + i) + chance.randrange(-500, 500) for i in range(count)])
        keys = binary_column([b"%07d" % chance.randrange(10_000) for _ in range(count)])
        values = binary_column([b" ".join(chance.choices(WORDS, k=18)).ljust(84)[:84] for _ in range(count)])
        batch = build_batch_v2_from_columns(timestamps, keys, values, base_offset=base, codec=codec, leader_epoch=0)
        segment.append(batch.last_offset, [read_header(batch.data)], batch.data)
    segment.on_become_inactive()
    segment.close()
    return segment.log.path


def scan_aiokafka(log: Path) -> int:
    """aiokafka's compiled reader, record by record, into Arrow batches."""
    schema = pa.schema(
        [("offset", pa.int64()), ("timestamp", pa.timestamp("ms", "UTC")), ("key", pa.binary()), ("value", pa.binary())]
    )
    rows = 0
    columns: tuple[list[int], list[int], list[bytes | None], list[bytes | None]] = ([], [], [], [])

    def emit() -> int:
        batch = pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
        )
        for column in columns:
            column.clear()
        return batch.num_rows

    offsets, timestamps, keys, values = columns
    records = MemoryRecords(log.read_bytes())
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        for record in batch:
            offsets.append(record.offset)
            timestamps.append(record.timestamp)
            keys.append(record.key)
            values.append(record.value)
        if len(offsets) >= 16_384:
            rows += emit()
    return rows + emit()


def scan_tidelog(data_dir: Path, *, views: bool) -> int:
    return sum(batch.num_rows for batch in tidelog.scan(data_dir, TOPIC, columns=COLUMNS, views=views))


def timed(work: Callable[[], int]) -> float:
    began = time.perf_counter()
    rows = work()
    seconds = time.perf_counter() - began
    assert rows == RECORDS, rows
    return seconds


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="scan into Arrow against aiokafka's C reader")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON line instead of a table")
    options = parser.parse_args(arguments)
    with one_core():
        result = run(options.rounds)
    print(json.dumps(result) if options.json else table(result))
    return 0 if all(row["ratio"] >= row["target"] for row in result["rows"]) else 1


@contextmanager
def one_core() -> Iterator[None]:
    """Pin this process to one core, and Arrow to one thread."""
    cores, threads = os.sched_getaffinity(0), pa.cpu_count()
    os.sched_setaffinity(0, {max(cores)})
    pa.set_cpu_count(1)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        pa.set_cpu_count(threads)


def run(rounds: int) -> dict[str, Any]:
    """Time all sides in turn; return medians in records a second, and ratios to aiokafka."""
    rows: list[dict[str, Any]] = []
    for name, records_a_batch, codec in FILES:
        with tempfile.TemporaryDirectory() as folder:
            data_dir = Path(folder)
            log = write_log(data_dir, records_a_batch, codec)
            sides: dict[str, Callable[[], int]] = {
                "aiokafka": partial(scan_aiokafka, log),
                "tidelog, binary": partial(scan_tidelog, data_dir, views=False),
                "tidelog, views": partial(scan_tidelog, data_dir, views=True),
            }
            seconds: dict[str, list[float]] = {side: [] for side in sides}
            for turn in range(rounds + 1):
                for side, work in sides.items():
                    elapsed = timed(work)
                    if turn:  # the first round warms caches and imports
                        seconds[side].append(elapsed)
        medians = {side: statistics.median(values) for side, values in seconds.items()}
        rows += [
            {
                "file": name,
                "reader": side,
                "records_per_second": RECORDS / median,
                "ratio": medians["aiokafka"] / median,
                "target": TARGETS[side] if codec is Codec.NONE else 1.0,
            }
            for side, median in medians.items()
        ]
    return {"bench": "scan", "records": RECORDS, "kernel": "compiled" if kernel.COMPILED else "interpreted", "rows": rows}


def table(result: dict[str, Any]) -> str:
    """Format the result."""
    lines = [
        f"scan into Arrow, one core, {result['records']:,} records, medians; kernel {result['kernel']}",
        f"{'file':<16}{'reader':<18}{'M records/s':>12}{'ratio':>8}{'at least':>10}",
    ]
    for row in result["rows"]:
        target = "" if row["reader"] == "aiokafka" else f"{row['target']:.0f} x"
        lines.append(
            f"{row['file']:<16}{row['reader']:<18}{row['records_per_second'] / 1e6:>12.2f}{row['ratio']:>6.1f} x{target:>10}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
