"""One look-up by time in a segment of 1 GiB: `tidelog find` against Kafka's DumpLogSegments, both as whole processes.

The segment is imported (1 KiB values, batches of 16 KiB, so about 65,000 batches), and five targets are looked up in it.
DumpLogSegments has no look-up: the timed call is the cheapest one that would show where to look, a dump of the segment's time
index. The two alternate; the medians are compared.

    python -m bench.find_bench [--rounds 5] [--segment-mb 1024] [--max-ratio 0.5]

Needs Java and Maven. Its files are in bench/out and are removed at the end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.kafka.jars import classpath, why_not
from tests.kafka.java import java_command

from bench.children.scratch import scratch

OUT = scratch("find")
FIRST_MS = 1_700_000_000_000
VALUE_BYTES = 1024


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="tidelog find against one DumpLogSegments call")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--segment-mb", type=int, default=1024)
    parser.add_argument("--max-ratio", type=float, default=0.5, help="end with 1 above this ratio")
    parser.add_argument("--json", action="store_true", help="print one JSON line instead of a table")
    options = parser.parse_args(arguments)
    reason = why_not()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 0
    result = run(options.rounds, options.segment_mb)
    print(json.dumps(result) if options.json else table(result))
    return 0 if result["ratio"] <= options.max_ratio else 1


def run(rounds: int, segment_mb: int) -> dict[str, Any]:
    """Time both programs in turn; return the seconds of each round, the medians and their ratio."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    try:
        log, records = _segment(segment_mb)
        index = next(log.glob("bench-0/*0.timeindex"))
        tidelog = Path(sys.executable).with_name("tidelog")
        jars = classpath("3.9.1")
        dump = java_command(jars, "kafka.tools.DumpLogSegments", ["--files", str(index)], heap_mb=256)
        ours: list[float] = []
        kafkas: list[float] = []
        for turn in range(rounds + 1):
            target = FIRST_MS + records * (turn + 1) // (rounds + 2) + 1
            took = _time(
                [str(tidelog), "find", str(log), "bench", "--at", str(target), "--json"], f'"offset":{target - FIRST_MS}'
            )
            took_kafka = _time(dump, "timestamp: ")
            if turn:  # the first round warms the page cache for both
                ours.append(took)
                kafkas.append(took_kafka)
    finally:
        shutil.rmtree(OUT, ignore_errors=True)
    medians = statistics.median(ours), statistics.median(kafkas)
    return {
        "segment_mb": segment_mb,
        "records": records,
        "tidelog_find_s": ours,
        "dump_log_segments_s": kafkas,
        "median_s": medians,
        "ratio": medians[0] / medians[1],
    }


def _segment(segment_mb: int) -> tuple[Path, int]:
    """Import one segment of about `segment_mb` MiB, a record a millisecond; return the data folder and the number of records."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet

    records = segment_mb * 1024 * 1024 // (VALUE_BYTES + 16)
    value = pa.array([b"x" * VALUE_BYTES]).take(pa.array(np.zeros(10_000, np.int64)))
    source = OUT / "records.parquet"
    schema = pa.schema([("time", pa.int64()), ("value", pa.binary())])
    with pyarrow.parquet.ParquetWriter(source, schema) as writer:
        for first in range(0, records, 10_000):
            count = min(10_000, records - first)
            times = pa.array(np.arange(first, first + count) + FIRST_MS)
            writer.write_table(pa.table([times, value[:count]], schema=schema))
    log = OUT / "log"
    command = [str(Path(sys.executable).with_name("tidelog")), "import", str(log), "bench", str(source)]
    command += ["--timestamp", "time", "--value", "value", "--segment-bytes", str(2**31 - 1)]
    subprocess.run(command, check=True, capture_output=True)
    source.unlink()
    return log, records


def _time(command: list[str], expected: str) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    took = time.perf_counter() - began
    if expected not in done.stdout.replace('": ', '":'):
        raise RuntimeError(f"{command[0]} did not answer {expected}: {done.stdout[:400]}")
    return took


def table(result: dict[str, Any]) -> str:
    ours, kafkas = result["median_s"]
    return (
        f"One look-up by time, segment of {result['segment_mb']} MiB, {result['records']:,} records; whole processes, medians\n"
        f"  DumpLogSegments of its time index  {kafkas * 1000:7.0f} ms   1\n"
        f"  tidelog find                       {ours * 1000:7.0f} ms   {result['ratio']:.2f}"
    )


if __name__ == "__main__":
    sys.exit(main())
