"""Look-ups by time: a million in one Spark job, compared with a loop of single searches on the same log.

The log has one partition of 4,000,000 records of 84 bytes in batches of 16 KiB and segments of 128 MiB, up to half a second
out of order. The look-ups are random times over all of it, in a Parquet file. The timed calls:

| | |
|---|---|
| single | `find_offset` in a loop, one log object, for a sample of the questions |
| batch | `sources.lookups.search_offsets` for all of them, in this process |
| job, first | `look_up` from the Parquet file to the cached rows: the JVM compiles, the workers start |
| job | the same call again; the median of `--rounds` |

The session's start is timed separately. Each answer of the job is compared with the batch's, and the sample with the loop's.

    python -m bench.lookup_bench [--records 4000000] [--questions 1000000] [--sample 2000] [--rounds 3] [--min-ratio 1]

Needs Java. Its files are in bench/out and are removed at the end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.children.scratch import OUT
from tidelog.clock import SystemClock
from tidelog.ingest.importer import ImportOptions, import_file
from tidelog.reader.log_dir import LogDir
from tidelog.reader.time_search import find_offset
from tidelog.sources.lookups import FoundOffsets, search_offsets

TOPIC = "bench"
FIRST_MS = 1_600_000_000_000
STEP_MS = 3
JITTER_MS = 500
VALUE_BYTES = 84
SEGMENT_BYTES = 128 << 20
SEED = 1


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="look-ups by time: one Spark job against a loop of single searches")
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--questions", type=int, default=1_000_000)
    parser.add_argument("--sample", type=int, default=2_000, help="single searches that are timed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--min-ratio", type=float, default=1.0, help="end with 1 if the job's rate is below so many times the loop's"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON line instead of a table")
    options = parser.parse_args(arguments)
    result = run(options.records, options.questions, options.sample, options.rounds)
    print(json.dumps(result) if options.json else table(result))
    return 0 if result["ratio"] >= options.min_ratio else 1


def run(records: int, questions: int, sample: int, rounds: int) -> dict[str, Any]:
    """Make the log and the look-ups, and time everything; return seconds and rates."""
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=OUT) as folder:
        data = Path(folder) / "log"
        chance = np.random.default_rng(SEED)
        _write_log(data, Path(folder) / "records.parquet", records, chance)
        times = FIRST_MS + chance.integers(-JITTER_MS, STEP_MS * records + JITTER_MS, questions)
        asked = Path(folder) / "questions.parquet"
        columns = {"topic": pa.repeat(pa.scalar(TOPIC), questions), "partition": pa.array(np.zeros(questions, np.int32))}
        pq.write_table(pa.table({**columns, "timestamp": pa.array(times), "number": pa.array(np.arange(questions))}), asked)
        single_s, singles = _one_by_one(data, times[:sample])
        batch_s, answers = _batch(data, times)
        if singles != answers.offsets[:sample].tolist():
            raise RuntimeError("single searches and the batch do not agree")
        session_s, jobs = _jobs(data, asked, answers, rounds)
    job_s = statistics.median(jobs[1:])
    return {
        "records": records,
        "questions": questions,
        "single_per_s": len(singles) / single_s,
        "batch_per_s": questions / batch_s,
        "session_start_s": session_s,
        "first_job_s": jobs[0],
        "job_s": jobs[1:],
        "job_per_s": questions / job_s,
        "ratio": questions / job_s / (len(singles) / single_s),
    }


def _write_log(data: Path, source: Path, records: int, chance: np.random.Generator) -> None:
    """Import a partition; the records are made in pieces."""
    schema = pa.schema([("time", pa.int64()), ("value", pa.binary())])
    values = pa.repeat(pa.scalar(b"x" * VALUE_BYTES), 500_000)
    with pq.ParquetWriter(source, schema) as writer:
        for first in range(0, records, 500_000):
            count = min(500_000, records - first)
            times = FIRST_MS + STEP_MS * np.arange(first, first + count) + chance.integers(-JITTER_MS, JITTER_MS, count)
            writer.write_table(pa.table([pa.array(times), values[:count]], schema=schema))
    properties = {"segment.bytes": str(SEGMENT_BYTES)}
    options = ImportOptions(timestamp_column="time", value_column="value", properties=properties)
    import_file(data, TOPIC, source, options, SystemClock())
    source.unlink()


def _one_by_one(data: Path, times: np.ndarray[Any, np.dtype[np.int64]]) -> tuple[float, list[int]]:
    with LogDir(data).log(TOPIC, 0) as log:
        began = time.perf_counter()
        answers = [find_offset(log, target) for target in times.tolist()]
        return time.perf_counter() - began, [-1 if found is None else found.offset for found in answers]


def _batch(data: Path, times: np.ndarray[Any, np.dtype[np.int64]]) -> tuple[float, FoundOffsets]:
    with LogDir(data).log(TOPIC, 0) as log:
        began = time.perf_counter()
        answers = search_offsets(log, times)
        return time.perf_counter() - began, answers


def _jobs(data: Path, asked: Path, expected: FoundOffsets, rounds: int) -> tuple[float, list[float]]:
    """Run the job once, and then `rounds` more times; return the seconds of the session's start and of each run."""
    from tidelog.spark import session
    from tidelog.spark.jobs.lookups import look_up

    config = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}
    began = time.perf_counter()
    spark = session("lookup bench", config=config)
    session_s = time.perf_counter() - began
    took = []
    try:
        for turn in range(1 + rounds):
            began = time.perf_counter()
            result = look_up(spark, str(data), spark.read.parquet(str(asked)))
            took.append(time.perf_counter() - began)
            if turn == 0:
                rows = result.rows.orderBy("number").select("offset").toArrow()
                if rows.column("offset").fill_null(-1).to_numpy().tolist() != expected.offsets.tolist():
                    raise RuntimeError("the job and the batch do not agree")
            spark.catalog.clearCache()
    finally:
        spark.stop()
    return session_s, took


def table(result: dict[str, Any]) -> str:
    loop, batch, job = (result[name] for name in ("single_per_s", "batch_per_s", "job_per_s"))
    return (
        f"{result['questions']:,} look-ups by time in {result['records']:,} records of one partition\n"
        f"  find_offset in a loop          {loop:12,.0f} a second   1\n"
        f"  search_offsets, one process      {batch:12,.0f} a second   {batch / loop:.0f}\n"
        f"  Spark job                      {job:12,.0f} a second   {result['ratio']:.0f}"
        f"   ({statistics.median(result['job_s']):.1f} s; the first one {result['first_job_s']:.1f} s)\n"
        f"  start of the session           {result['session_start_s']:12.1f} s, by itself"
    )


if __name__ == "__main__":
    sys.exit(main())
