"""Reading a bucket whose server takes its time: a time range of one partition, beside `pyarrow.fs` reading the same bytes.

S3Proxy serves the bucket, and a proxy before it delays each request by 20 ms, counts requests, and notes how many are in flight.
The log is in segments of 64 MiB (`--segment-mib`) with time maps and a summary, as `tidelog index rebuild` leaves them.
`pyarrow.fs` reads what the plan of Tidelog reads, in pieces of the same size by as many threads as Tidelog has requests in
flight, and does nothing with them. Tidelog plans, reads, checks every batch, and makes Arrow batches. Both go through the same
proxy, in turn; medians are compared.

| row | target |
|---|---|
| a range of all, by Tidelog | 0.8 of the rate of `pyarrow.fs` |
| requests in flight | 8 |
| a search for a time, without a cache | 6 requests |
| a range of 1 %: bytes of all | 2 % |

    python -m bench.objects.bucket_bench [--mib 1024] [--segment-mib 64] [--rounds 3] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyarrow import fs
from tests.kafka.jars import why_not
from tests.reader.build import LogBuilder, batch
from tests.s3.server import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, S3Server

import tidelog
from bench.scan_bench import COLUMNS, TOPIC
from tidelog.check.folder_indexes import RebuildOptions, rebuild_partitions
from tidelog.check.partitions import partitions_to_verify
from tidelog.model import TopicPartition
from tidelog.objects.address import with_options
from tidelog.objects.read_ahead import IN_FLIGHT, PIECE_BYTES
from tidelog.sources.bounds import TimeRange
from tidelog.sources.opening import open_source
from tidelog.sources.scan_plan import ScanRequest

LATENCY_S = 0.02
RECORDS_A_BATCH, VALUE_BYTES = 16, 4096
START_MS = 1_600_000_000_000
KEY = TopicPartition(TOPIC, 0)
MOST_REQUESTS, MOST_SHARE, LEAST_IN_FLIGHT, LEAST_RATE = 6, 0.02, 8, 0.8


def write(folder: Path, mib: int, segment_mib: int) -> int:
    """Write a log of so many MiB, a record a millisecond, and what `index rebuild` adds. Return the number of records."""
    builder = LogBuilder(folder / f"{TOPIC}-0", segment_bytes=segment_mib << 20, interval_bytes=4096, index_bytes=10 << 20)
    value = bytes(range(256)) * (VALUE_BYTES // 256)
    count = (mib << 20) // VALUE_BYTES
    for offset in range(0, count, RECORDS_A_BATCH):
        builder.append(batch(offset, [START_MS + offset + i for i in range(RECORDS_A_BATCH)], value=value))
    builder.close()
    for _ in rebuild_partitions(partitions_to_verify(tidelog.LogDir(folder), [(TOPIC, 0)]), RebuildOptions(None, 4096)):
        pass
    return count


def run(mib: int, segment_mib: int, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name, S3Server(Path(name)) as server:
        count = write(Path(name, "data"), mib, segment_mib)
        for file in sorted(Path(name, "data").rglob("*.*")):  # One by one: the server keeps an object in memory meanwhile.
            server.put(f"data/{file.relative_to(Path(name, 'data')).as_posix()}", file.read_bytes())
        address = with_options(server.url("data"), server.options | {"cache_bytes": "0"})
        start, end = START_MS, START_MS + count
        with open_source(address) as source:
            splits = source.plan(ScanRequest(topic=TOPIC, time=TimeRange(start, end))).splits
            ranges = [(split.path, run.start_position, run.end_position) for split in splits for run in split.runs]
        total = sum(last - first for _, first, last in ranges)
        at = f"127.0.0.1:{server.front.port}"
        arrow = fs.S3FileSystem(
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            region=REGION,
            scheme="http",
            endpoint_override=at,
        )
        times: dict[str, list[float]] = {"pyarrow.fs": [], "tidelog": []}
        in_flight = 0
        for _ in range(rounds):
            with server.front.measured() as front:
                front.latency_s = LATENCY_S
                begin = time.perf_counter()
                assert read_by_arrow(arrow, ranges) == total
                times["pyarrow.fs"].append(time.perf_counter() - begin)
            with server.front.measured() as front:
                front.latency_s = LATENCY_S
                begin = time.perf_counter()
                rows = sum(one.num_rows for one in tidelog.scan(address, TOPIC, start=start, end=end, columns=COLUMNS))
                times["tidelog"].append(time.perf_counter() - begin)
                assert rows == count
                in_flight = max(in_flight, front.most_in_flight)
        with server.front.measured() as front, open_source(address) as source:
            found = source.find({KEY: START_MS + count * 3 // 4})[KEY]
            assert found is not None and found.offset == count * 3 // 4
            requests = front.count("GET", f"{TOPIC}-0/")
        with server.front.measured() as front:
            begin_ms = START_MS + count // 2
            rows = tidelog.scan(address, TOPIC, start=begin_ms, end=begin_ms + count // 100).read_all().num_rows
            assert rows == count // 100
            share = front.sent_bytes() / total
    medians = {who: statistics.median(of) for who, of in times.items()}
    return {
        "mib": total / (1 << 20),
        "segment_mib": segment_mib,
        "seconds": medians,
        "rate": medians["pyarrow.fs"] / medians["tidelog"],
        "in_flight": in_flight,
        "requests_of_a_search": requests,
        "share_of_bytes": share,
    }


def read_by_arrow(arrow: fs.S3FileSystem, ranges: list[tuple[str, int, int]]) -> int:
    """Read ranges of objects; return the number of bytes."""
    files = {path: arrow.open_input_file(path.removeprefix("s3://")) for path, _, _ in ranges}
    pieces = [(path, at, min(PIECE_BYTES, last - at)) for path, first, last in ranges for at in range(first, last, PIECE_BYTES)]
    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        return sum(pool.map(lambda piece: len(files[piece[0]].read_at(piece[2], piece[1])), pieces))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Reading a bucket whose server takes its time, beside pyarrow.fs.")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--segment-mib", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print one JSON line instead of a table")
    options = parser.parse_args(arguments)
    reason = why_not()
    if reason is not None:
        print(reason)
        return 0
    result = run(options.mib, options.segment_mib, options.rounds)
    met = (
        result["rate"] >= LEAST_RATE
        and result["in_flight"] >= LEAST_IN_FLIGHT
        and result["requests_of_a_search"] <= MOST_REQUESTS
        and result["share_of_bytes"] <= MOST_SHARE
    )
    print(json.dumps(result) if options.json else table(result))
    return 0 if met else 1


def table(result: dict[str, Any]) -> str:
    return "\n".join(
        (
            f"{result['mib']:,.0f} MiB of {BUCKET} in segments of {result['segment_mib']} MiB, "
            f"{LATENCY_S * 1000:.0f} ms a request",
            *(f"  {who:12} {seconds:6.2f} s" for who, seconds in result["seconds"].items()),
            f"  rate of pyarrow.fs {result['rate']:.2f}, target {LEAST_RATE}",
            f"  in flight {result['in_flight']}, target {LEAST_IN_FLIGHT}",
            f"  requests of a search {result['requests_of_a_search']}, at most {MOST_REQUESTS}",
            f"  bytes of a range of 1 %: {result['share_of_bytes']:.2%}, at most {MOST_SHARE:.0%}",
        )
    )


if __name__ == "__main__":
    sys.exit(main())
