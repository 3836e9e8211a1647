"""One minute out of a day, from a topic whose records are out of order: what a scan reads with and without time maps.

| topic | its records' times, one every 50 ms |
|---|---|
| in order | as appended |
| shuffled | at random, within half a minute of their position |
| late | 95 % as appended, 4 % late by a minute or so (exponential), 1 % by up to a day |
| two sources | every second record an hour behind |
| batches late | one batch in ten arrives up to a day late |

Each is a day of records of 600 bytes in segments of 256 MiB, batches of 16 KiB. A block is the unit of a time map, a little over
64 KiB of log. The scan must read the blocks that contain a match. It may read at most 1.2 times as many blocks, and one more in
each segment. Scans with and without time maps alternate, and both return every record of the minute; medians are compared.

    python -m bench.time_range_bench [--rounds 5] [--hours 24] [--json]

Its files are in bench/out and are removed at the end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tidelog
from bench.children.scratch import scratch
from tidelog.clock import ManualClock
from tidelog.config import LogConfig
from tidelog.formats.time_map import TimeMap
from tidelog.reader.time_map_file import rebuild_time_map, time_map_path
from tidelog.records.batch import read_header
from tidelog.records.builder import binary_column, build_batch_v2_from_columns
from tidelog.storage.segment.log_segment import LogSegment

OUT = scratch("time_range")
TOPIC = "bench"
FIRST_MS = 1_700_000_000_000
EVERY_MS = 50
DAY_MS = 86_400_000
VALUE_BYTES = 590
RECORDS_A_BATCH = 27
SEGMENT_BYTES = 256 * 1024 * 1024
RANGE_MS = 60_000

Times = Callable[[np.random.Generator, np.ndarray], np.ndarray]


def in_order(chance: np.random.Generator, times: np.ndarray) -> np.ndarray:
    return times


def shuffled(chance: np.random.Generator, times: np.ndarray) -> np.ndarray:
    return times + chance.integers(-30_000, 30_000, len(times))


def late(chance: np.random.Generator, times: np.ndarray) -> np.ndarray:
    draw = chance.random(len(times))
    minutes = chance.exponential(60_000, len(times)).astype(np.int64)
    hours = chance.integers(0, DAY_MS, len(times))
    return times - np.where(draw < 0.01, hours, np.where(draw < 0.05, minutes, 0))


def two_sources(chance: np.random.Generator, times: np.ndarray) -> np.ndarray:
    return times - 3_600_000 * (np.arange(len(times)) % 2)


def batches_late(chance: np.random.Generator, times: np.ndarray) -> np.ndarray:
    batches = -(-len(times) // RECORDS_A_BATCH)
    delays = np.where(chance.random(batches) < 0.1, chance.integers(0, DAY_MS, batches), 0)
    return times - np.repeat(delays, RECORDS_A_BATCH)[: len(times)]


TOPICS: dict[str, Times] = {
    "in order": in_order,
    "shuffled": shuffled,
    "late": late,
    "two sources": two_sources,
    "batches late": batches_late,
}


def write_topic(data_dir: Path, records: int, times_of: Times) -> list[Path]:
    """Write the topic's one partition; return its `.log` files."""
    chance = np.random.default_rng(1)
    directory = data_dir / f"{TOPIC}-0"
    directory.mkdir(parents=True)
    times = times_of(chance, FIRST_MS + EVERY_MS * np.arange(records, dtype=np.int64))
    return write_log(directory, chance, times, RECORDS_A_BATCH, VALUE_BYTES)


def write_log(
    directory: Path, chance: np.random.Generator, times: np.ndarray, batch_records: int, value_bytes: int
) -> list[Path]:
    """Write records with these timestamps, as many as fill whole batches, into a partition's folder; return its `.log` files."""
    keys = binary_column([b"%06d" % n for n in range(batch_records)])
    values = binary_column([bytes(chance.integers(32, 127, value_bytes, np.uint8)) for _ in range(batch_records)])
    logs = []
    segment = None
    for base in range(0, len(times) - len(times) % batch_records, batch_records):
        stamps = array("q", times[base : base + batch_records].tobytes())
        batch = build_batch_v2_from_columns(stamps, keys, values, base_offset=base, leader_epoch=0)
        if segment is None or segment.size_bytes + len(batch.data) > SEGMENT_BYTES:
            if segment is not None:
                segment.on_become_inactive()
                segment.close()
            segment = LogSegment.open(directory, base, LogConfig(), ManualClock(0))
            logs.append(segment.log.path)
        segment.append(batch.last_offset, [read_header(batch.data)], batch.data)
    assert segment is not None
    segment.on_become_inactive()
    segment.close()
    return logs


def scan(data_dir: Path, start: int, maps: Path | None) -> tuple[list[int], tidelog.ScanReport, float]:
    """Scan the minute; return the offsets found, the report and the seconds."""
    report = tidelog.ScanReport()
    began = time.perf_counter()
    reader = tidelog.scan(data_dir, TOPIC, start, start + RANGE_MS, time_map_dir=maps, report=report)
    table = reader.read_all()
    seconds = time.perf_counter() - began
    return table["offset"].to_pylist(), report, seconds


def holding(maps: list[TimeMap], offsets: list[int]) -> int:
    """Return the number of blocks that contain one of the offsets."""
    found = set()
    for number, one in enumerate(maps):
        inside = [offset for offset in offsets if one.base_offset <= offset < one.next_offset]
        found |= {(number, bisect_right(one.first_offsets, offset)) for offset in inside}
    return len(found)


def run_topic(name: str, rounds: int, hours: float) -> dict[str, Any]:
    """Write one topic, map it, scan it in turns."""
    data_dir, maps_dir = OUT / "data", OUT / "maps"
    records = int(hours * 3_600_000 / EVERY_MS)
    logs = write_topic(data_dir, records, TOPICS[name])
    began = time.perf_counter()
    maps = [found for log in logs if (found := rebuild_time_map(log, maps_dir)) is not None]
    mapping_s = time.perf_counter() - began
    start = FIRST_MS + int(hours * 3_600_000 * 0.4)
    seconds: dict[str, list[float]] = {"with": [], "without": []}
    for turn in range(rounds + 1):
        offsets, without, took_without = scan(data_dir, start, None)
        same, report, took_with = scan(data_dir, start, maps_dir)
        assert same == offsets
        if turn:  # the first round warms the page cache for both
            seconds["with"].append(took_with)
            seconds["without"].append(took_without)
    held = holding(maps, offsets)
    result = {
        "topic": name,
        "log_bytes": sum(log.stat().st_size for log in logs),
        "map_bytes": sum(time_map_path(log, maps_dir).stat().st_size for log in logs),
        "mapping_s": mapping_s,
        "segments": len(logs),
        "records_found": len(offsets),
        "blocks": sum(one.blocks for one in maps),
        "blocks_holding": held,
        "blocks_read": report.blocks_read,
        "blocks_allowed": 1.2 * held + len(logs),
        "bytes_read": report.bytes_read,
        "bytes_read_without": without.bytes_read,
        "seconds": statistics.median(seconds["with"]),
        "seconds_without": statistics.median(seconds["without"]),
    }
    shutil.rmtree(OUT, ignore_errors=True)
    return result


def table(rows: list[dict[str, Any]]) -> str:
    """Format the results."""
    size = rows[0]["log_bytes"] / 2**30
    lines = [
        f"{RANGE_MS // 1000} s of a topic of {size:.1f} GiB, {rows[0]['segments']} segments, warm, medians; maps against none",
        f"{'':<13}{'blocks':>38}   {'MiB read':>20}   {'ms':>20}   {'maps':>14}",
        f"{'topic':<13}{'all':>7}{'hold':>6}{'read':>6}{'ratio':>8}{'allowed':>11}   {'maps':>6}{'none':>7}{'ratio':>7}   "
        f"{'maps':>6}{'none':>7}{'ratio':>7}   {'% of log':>8}{'GB/s':>6}",
    ]
    for row in rows:
        ratio = row["blocks_read"] / max(1, row["blocks_holding"])
        bytes_ratio, ratio_s = row["bytes_read_without"] / max(1, row["bytes_read"]), row["seconds_without"] / row["seconds"]
        lines.append(
            f"{row['topic']:<13}{row['blocks']:>7,}{row['blocks_holding']:>6,}{row['blocks_read']:>6,}{ratio:>6.2f} x"
            f"{row['blocks_allowed']:>11,.1f}   "
            f"{row['bytes_read'] / 2**20:>6.1f}{row['bytes_read_without'] / 2**20:>7.0f}{bytes_ratio:>5.0f} x   "
            f"{row['seconds'] * 1000:>6.1f}{row['seconds_without'] * 1000:>7.0f}{ratio_s:>5.0f} x   "
            f"{100 * row['map_bytes'] / row['log_bytes']:>8.2f}{row['log_bytes'] / row['mapping_s'] / 1e9:>6.1f}"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="a narrow time range with and without time maps")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--json", action="store_true", help="print one JSON line instead of a table")
    options = parser.parse_args(arguments)
    shutil.rmtree(OUT, ignore_errors=True)
    try:
        rows = [run_topic(name, options.rounds, options.hours) for name in TOPICS]
    finally:
        shutil.rmtree(OUT, ignore_errors=True)
    print(json.dumps({"bench": "time_range", "rows": rows}) if options.json else table(rows))
    return 0 if all(row["blocks_read"] <= row["blocks_allowed"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
