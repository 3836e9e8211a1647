"""The server of `tidelog ui`: how soon it answers, and its memory.

| folder | |
|---|---|
| wide | 3,500 partitions, 10,000 segments |
| long | a partition of 10 M records with time maps; 4 % are late by a minute or so, 1 % by up to a day |

| figure | is | target |
|---|---|---|
| first paint | the page, the sources, the first 100 topics with their figures, one after the other, from a new server | 500 ms |
| a drag | counts (500 intervals), the first 100 records by time, and the cut of a range, asked at once, until all came | 200 ms |
| memory | the server's largest resident set after all that, downloads of half the records and pages of 1,000 | 150 MB |

A drag is repeated for ranges of a minute to the whole log; medians and the slowest are shown, and the server's processor time,
which other programs do not change. The memory after a page of records of 100 MB each is shown, too: a batch is read whole.

    python -m bench.web.page_bench [--rounds 5] [--records 10000000] [--keep FOLDER] [--json]

Its files are in bench/out and are removed at the end, unless a folder is given.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np

from bench.children.scratch import scratch
from bench.time_range_bench import DAY_MS, FIRST_MS, late, write_log
from tidelog.clock import ManualClock
from tidelog.config import LogConfig
from tidelog.reader.time_map_file import rebuild_time_map
from tidelog.records.batch import read_header
from tidelog.records.builder import binary_column, build_batch_v2_from_columns
from tidelog.storage.segment.log_segment import LogSegment

OUT = scratch("page")
RECORDS_A_BATCH = 150
VALUE_BYTES = 90
PARTITIONS, SEGMENTS, TOPICS = 3_500, 10_000, 350
LARGE_BYTES, LARGE_RECORDS = 100_000_000, 2
TARGETS = {"first_paint_ms": 500, "drag_ms": 200, "memory_mb": 150}


def write_wide(folder: Path) -> None:
    """Write many small partitions."""
    value = binary_column([b"x" * 100])
    for number in range(PARTITIONS):
        directory = folder / f"topic-{number % TOPICS:03d}-{number // TOPICS}"
        directory.mkdir(parents=True)
        count = SEGMENTS // PARTITIONS + (number < SEGMENTS % PARTITIONS)
        for base in range(count):
            stamps = array("q", [FIRST_MS + 60_000 * base + number])
            batch = build_batch_v2_from_columns(stamps, value, value, base_offset=base, leader_epoch=0)
            segment = LogSegment.open(directory, base, LogConfig(), ManualClock(0))
            segment.append(batch.last_offset, [read_header(batch.data)], batch.data)
            segment.on_become_inactive()
            segment.close()


def write_long(folder: Path, records: int) -> None:
    """Write one long partition with time maps, and one of large records."""
    chance = np.random.default_rng(1)
    directory = folder / "long-0"
    directory.mkdir(parents=True)
    times = late(chance, FIRST_MS + DAY_MS * np.arange(records, dtype=np.int64) // records)
    for log in write_log(directory, chance, times, RECORDS_A_BATCH, VALUE_BYTES):
        rebuild_time_map(log)
    large = folder / "large-0"
    large.mkdir()
    segment = LogSegment.open(large, 0, LogConfig(), ManualClock(0))
    for offset in range(LARGE_RECORDS):
        column = binary_column([bytes(LARGE_BYTES)])
        stamps = array("q", [FIRST_MS + offset])
        batch = build_batch_v2_from_columns(stamps, binary_column([b"k"]), column, base_offset=offset, leader_epoch=0)
        segment.append(batch.last_offset, [read_header(batch.data)], batch.data)
    segment.close()


class Server:
    """A running `tidelog ui`."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.base, _, self.token = url.strip().partition("/?token=")

    def get(self, path: str) -> Any:
        request = Request(self.base + path, headers={"Authorization": f"Bearer {self.token}"})
        with urlopen(request) as answer:
            data = answer.read()
            return json.loads(data) if answer.headers["content-type"] == "application/json" else data

    def processor_ms(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")

    def peak_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    command = [sys.executable, "-m", "tidelog", "ui", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Server(process, process.stdout.readline())
        finally:
            process.terminate()


def first_paint(folder: Path) -> tuple[float, float, float, bool]:
    """Return ms, the server's processor time for it (ms), the peak in MB, and whether every figure was there at once."""
    with serving(folder) as server:
        began, used = time.perf_counter(), server.processor_ms()
        server.get("/")
        server.get("/api/sources")
        found = server.get("/api/topics?limit=100")
        took = (time.perf_counter() - began) * 1000
        is_whole = not any(one["pending"] for one in found["topics"])
        return took, server.processor_ms() - used, server.peak_mb(), is_whole


def drags(folder: Path, rounds: int) -> dict[str, Any]:
    """Return the times of drags over ranges of several widths, and the peak in MB."""
    took: dict[str, list[float]] = {}
    parts: dict[str, list[float]] = {}
    with serving(folder) as server, ThreadPoolExecutor(3) as threads:
        server.get("/api/segments?topic=long&partition=0")
        for turn in range(rounds + 1):
            for name, width in (("minute", 60_000), ("hour", 3_600_000), ("six hours", 6 * 3_600_000), ("all", 3 * DAY_MS)):
                start = FIRST_MS - DAY_MS if name == "all" else FIRST_MS + DAY_MS // 2 + turn * 1_000
                span = f"topic=long&start={start}&end={start + width}"
                asked = (f"/api/counts?{span}&buckets=500", f"/api/records?{span}&order=time&limit=100", f"/api/cut?{span}")

                def timed(path: str, turn: int = turn, name: str = name) -> None:
                    began = time.perf_counter()
                    server.get(path)
                    if turn:
                        parts.setdefault(f"{path[5:9]} {name}", []).append((time.perf_counter() - began) * 1000)

                began, used = time.perf_counter(), server.processor_ms()
                list(threads.map(timed, asked))
                if turn:
                    took.setdefault(name, []).append((time.perf_counter() - began) * 1000)
                    parts.setdefault(f"processor {name}", []).append(server.processor_ms() - used)
        peaks = {}
        for order in ("time", "offset"):
            server.get(f"/api/export?topic=long&format=parquet&order={order}&start={FIRST_MS + DAY_MS // 2}")
        for topic in ("long", "large"):
            for order in ("time", "offset"):
                server.get(f"/api/records?topic={topic}&order={order}&limit=1000")
            peaks[topic] = server.peak_mb()
        medians = {name: round(statistics.median(times), 1) for name, times in took.items()}
        shown = {name: round(statistics.median(times), 1) for name, times in parts.items()}
        return {"drag": medians, "parts": shown, "slowest_ms": round(max(map(max, took.values())), 1), **peaks}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    out = options.keep or OUT
    if not (out / "long" / "large-0").exists():
        shutil.rmtree(out, ignore_errors=True)
        write_wide(out / "wide")
        write_long(out / "long", options.records)
    try:
        paints = [first_paint(out / "wide") for _ in range(options.rounds)]
        dragged = drags(out / "long", options.rounds)
    finally:
        if options.keep is None:
            shutil.rmtree(OUT, ignore_errors=True)
    found = {
        "first_paint_ms": round(statistics.median(one[0] for one in paints), 1),
        "first_paint_processor_ms": statistics.median(one[1] for one in paints),
        "first_paint_whole": all(one[3] for one in paints),
        "wide_peak_mb": round(max(one[2] for one in paints), 1),
        "drag_ms": max(dragged["drag"].values()),
        "drags": dragged["drag"],
        "parts": dragged["parts"],
        "slowest_ms": dragged["slowest_ms"],
        "memory_mb": round(dragged["long"], 1),
        "memory_100_mb_values_mb": round(dragged["large"], 1),
    }
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:26} {value}{f'   (target: at most {TARGETS[name]})' if name in TARGETS else ''}")
    return int(any(found[name] > limit for name, limit in TARGETS.items()))


if __name__ == "__main__":
    sys.exit(main())
