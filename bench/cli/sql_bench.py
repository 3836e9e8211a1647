"""`tidelog.sql` over 1 % of a topic's time, compared with `tidelog.scan` of the same range and columns alone.

| query | the scan beside it |
|---|---|
| count(*) | the timestamps |
| per minute | the timestamps; by `time_bucket` |
| date_trunc | the same by `date_trunc` |
| text | the values: how many contain a word |
| rows | offset, timestamp, key and value, handed over as Arrow |

The topic has ten million records of 91 bytes in time order, in batches of 16 KiB, in one partition. Both sides run in this
process in turn, after a first round that is not counted: a new session each time, on a DuckDB instance that is already open. The
ratio is the median of the rounds' ratios of processor time, all threads together. `duckdb` is the same query on the scanned
columns in memory, without Tidelog: there, date_trunc looks up the time zone of each row.
`whole` counts all records, and shows how far the process's memory grows meanwhile.

    python -m bench.cli.sql_bench [--rounds 9] [--records 10000000] [--json]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

import tidelog
from bench.scan_bench import TOPIC
from tidelog.clock import SystemClock
from tidelog.config import LogConfig
from tidelog.queries.topic_scan import table_schema
from tidelog.records.batch import read_header
from tidelog.records.builder import binary_column, build_batch_v2_from_columns
from tidelog.storage.segment.log_segment import LogSegment

FIRST_MS = 1_600_000_000_000
BATCH = 165
MAX_RATIO = 1.3

QUERIES: dict[str, tuple[list[str], str]] = {
    "count(*)": (["timestamp"], "count(*)"),
    "per minute": (["timestamp"], "time_bucket(INTERVAL 1 minute, timestamp), count(*)"),
    "date_trunc": (["timestamp"], "date_trunc('minute', timestamp), count(*)"),
    "text": (["value"], "count(*) FILTER (value LIKE '%birch%')"),
    "rows": (["offset", "timestamp", "key", "value"], '"offset", timestamp, key, value'),
}


def write_topic(data_dir: Path, records: int) -> None:
    directory = data_dir / f"{TOPIC}-0"
    directory.mkdir(parents=True)
    segment = LogSegment.open(directory, 0, LogConfig(segment_bytes=2**31 - 1), SystemClock())
    words = [b"alder birch cedar ebony fir hazel larch maple oak pine rowan willow yew %07d".ljust(84) % n for n in range(BATCH)]
    keys = binary_column([b"%07d" % n for n in range(BATCH)])
    values = binary_column(words)
    for base in range(0, records, BATCH):
        timestamps = array("q", range(FIRST_MS + base, FIRST_MS + base + BATCH))
        batch = build_batch_v2_from_columns(timestamps, keys, values, base_offset=base, leader_epoch=0)
        segment.append(batch.last_offset, [read_header(batch.data)], batch.data)
    segment.on_become_inactive()
    segment.close()


def run(rounds: int, records: int) -> dict[str, Any]:
    result: dict[str, Any] = {"records": records, "queries": {}}
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder)
        write_topic(data_dir, records)
        end = FIRST_MS + records
        start = end - records // 100
        where = f"timestamp >= epoch_ms({start})::TIMESTAMPTZ AND timestamp < epoch_ms({end})::TIMESTAMPTZ"
        for name, (columns, selected) in QUERIES.items():
            group = " GROUP BY 1" if "count(*)" in selected and "," in selected else ""
            query = f"SELECT {selected} FROM {TOPIC} WHERE {where}{group}"
            in_memory = tidelog.scan(data_dir, TOPIC, start, end, columns).read_all()
            in_memory = in_memory.cast(table_schema(in_memory.schema, is_raw=False))
            alone = duckdb.connect()
            alone.execute("SET TimeZone = 'UTC'")
            alone.register("scanned", in_memory)

            def scanned(columns: list[str] = columns) -> object:
                return sum(batch.num_rows for batch in tidelog.scan(data_dir, TOPIC, start, end, columns))

            def queried(query: str = query) -> object:
                return sum(batch.num_rows for batch in tidelog.sql(query, data_dir, tz="UTC").to_arrow_reader(16_384))

            def by_duckdb(query: str = f"SELECT {selected} FROM scanned{group}", alone: Any = alone) -> object:
                return sum(batch.num_rows for batch in alone.sql(query).to_arrow_reader(16_384))

            times = [(_seconds(scanned), _seconds(queried), _seconds(by_duckdb)) for _ in range(rounds + 1)][1:]
            scan_s, sql_s, duckdb_s = (statistics.median(one) for one in zip(*times, strict=True))
            ratio = statistics.median(sql / scan for scan, sql, _ in times)
            result["queries"][name] = {"scan_s": scan_s, "sql_s": sql_s, "duckdb_s": duckdb_s, "ratio": ratio}
            alone.close()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        (found,) = tidelog.sql(f"SELECT count(*) FROM {TOPIC}", data_dir).fetchall()
        assert found == (records - records % BATCH + (BATCH if records % BATCH else 0),), found
        result["whole_grows_mib"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    return result


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="tidelog.sql against tidelog.scan")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--json", action="store_true", help="print one JSON line instead of a table")
    options = parser.parse_args(arguments)
    result = run(options.rounds, options.records)
    if options.json:
        print(json.dumps(result))
    else:
        for name, one in result["queries"].items():
            times = "   ".join(f"{part} {one[f'{part}_s'] * 1000:7.1f} ms" for part in ("scan", "sql", "duckdb"))
            print(f"{name:12} {times}   {one['ratio']:.2f}x")
        print(f"count(*) of all {result['records']:,} records: memory grows by {result['whole_grows_mib']} MiB")
    return 1 if any(one["ratio"] > MAX_RATIO for one in result["queries"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
