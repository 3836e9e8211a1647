"""Appending as leader, compared with a checksum and a write of the same bytes: the cost of validation and indexes.

| side | work for each batch |
|---|---|
| append | `PartitionLog.append_as_leader`: header, checksum, every record, offsets, roll, indexes, epochs, producer state |
| CRC and write | `crc32c` of the batch, `os.write` to a file |

Batches have 64 KiB; each is in its own buffer, as from a socket. Neither side waits for the disk, so the bench reports processor
time (including the kernel's copying). The two alternate on the same file system, the order changes from round to round, and the
medians are compared. Target: at least half the rate of the other side for records of 1 KiB. The other lines are for information:
a compressed batch must be decompressed to be checked.

    python -m bench.append_bench [--rounds 9] [--mb 128] [--profile]

Its files are in bench/out and are removed at the end.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import random
import shutil
import statistics
import sys
import time
from typing import NamedTuple

from crc32c import crc32c

from bench.children.scratch import scratch
from tidelog.clock import SystemClock
from tidelog.config import LogConfig
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.records import Record
from tidelog.storage.loading.loader import load
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.scheduler import Scheduler

OUT = scratch("append")
BATCH_BYTES = 64 * 1024


class Line(NamedTuple):
    """One line of the table: value size, codec, topic configuration, target ratio."""

    name: str
    value_bytes: int
    codec: Codec = Codec.NONE
    timestamp_type: str = "CreateTime"
    is_idempotent: bool = False
    target: float | None = None


LINES = (
    Line("1 KiB records", 1024, target=0.5),
    Line("1 KiB, idempotent producer", 1024, is_idempotent=True),
    Line("1 KiB, LogAppendTime", 1024, timestamp_type="LogAppendTime"),
    Line("100 B records", 100),
    Line("1 KiB, lz4", 1024, Codec.LZ4),
    Line("1 KiB, zstd", 1024, Codec.ZSTD),
)


class Result(NamedTuple):
    """The median MB/s of both sides."""

    append: float
    write: float

    @property
    def ratio(self) -> float:
        return self.append / self.write


def measure(line: Line, rounds: int, megabytes: int) -> Result:
    """Time both sides in turn."""
    batch = make_batch(line)
    count = max(1, megabytes * 1024 * 1024 // BATCH_BYTES)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(rounds + 1):
        for appends in (True, False) if turn % 2 else (False, True):
            shutil.rmtree(OUT, ignore_errors=True)
            OUT.mkdir(parents=True)
            buffers = [batch_for(line, batch, i) for i in range(count)]
            took = time_append(line, buffers) if appends else time_write(buffers)
            if turn:  # the first round is a warm-up
                seconds[appends].append(took)
    size = len(batch) * count / 1e6
    return Result(size / statistics.median(seconds[True]), size / statistics.median(seconds[False]))


def make_batch(line: Line) -> bytearray:
    """Return a producer's batch of about 64 KiB uncompressed; half of each value is random."""
    noise = random.Random(1)
    half = line.value_bytes // 2
    now_ms = SystemClock().now_ms()
    count = (BATCH_BYTES - 100) // (line.value_bytes + 16)
    records = [Record(i, now_ms + i, CREATE_TIME, b"%08d" % i, noise.randbytes(half) + bytes(half)) for i in range(count)]
    producer = Producer(7, 0, 0) if line.is_idempotent else Producer()
    return build_batch_v2(records, codec=line.codec, producer=producer)


def batch_for(line: Line, batch: bytearray, index: int) -> bytearray:
    """Return a copy of the batch with later timestamps, in a separate buffer; an idempotent producer's batch gets the next
    sequence.
    """
    own = bytearray(batch)
    count = int.from_bytes(own[57:61])
    for at in (27, 35):
        own[at : at + 8] = (int.from_bytes(own[at : at + 8]) + index * count).to_bytes(8)
    if line.is_idempotent:
        own[53:57] = (index * count).to_bytes(4)
    own[17:21] = crc32c(memoryview(own)[21:]).to_bytes(4)
    return own


def open_log(line: Line) -> PartitionLog:
    clock = SystemClock()
    config = LogConfig.from_properties({"message.timestamp.type": line.timestamp_type})
    directory = OUT / "bench-0"
    directory.mkdir()
    return load(directory, config, clock, Scheduler(clock), had_clean_shutdown=True)


def time_append(line: Line, buffers: list[bytearray]) -> float:
    log = open_log(line)
    append = log.append_as_leader
    began = time.process_time()
    for buffer in buffers:
        append(buffer, 0)
    took = time.process_time() - began
    log.close_handlers()
    return took


def time_write(buffers: list[bytearray]) -> float:
    fd = os.open(OUT / "bytes", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        began = time.process_time()
        for buffer in buffers:
            crc32c(memoryview(buffer)[21:])
            os.write(fd, buffer)
        return time.process_time() - began
    finally:
        os.close(fd)


def profile(line: Line, megabytes: int) -> None:
    """Print a profile of appends."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    batch = make_batch(line)
    buffers = [batch_for(line, batch, i) for i in range(megabytes * 1024 * 1024 // BATCH_BYTES)]
    profiler = cProfile.Profile()
    profiler.enable()
    time_append(line, buffers)
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(30)


def main(arguments: list[str] | None = None) -> int:
    """Print the table; return 1 if the target is missed."""
    parser = argparse.ArgumentParser(description="appends against CRC and write of the same bytes")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--mb", type=int, default=128, help="how much is appended in a round")
    parser.add_argument("--only", default="", help="lines whose name begins like this")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args(arguments)
    missed = False
    lines = [line for line in LINES if line.name.startswith(options.only)]
    print(f"{'batches of 64 KiB':<28} {'append MB/s':>12} {'CRC+write MB/s':>15} {'ratio':>6}  {'µs/batch':>8}  target")
    try:
        for line in lines:
            if options.profile:
                profile(line, options.mb)
                continue
            result = measure(line, options.rounds, options.mb)
            micros = len(make_batch(line)) / result.append
            verdict = ""
            if line.target is not None:
                met = result.ratio >= line.target
                missed = missed or not met
                verdict = f">= {line.target:g} {'met' if met else 'MISSED'}"
            print(
                f"{line.name:<28} {result.append:>12,.0f} {result.write:>15,.0f} {result.ratio:>6.2f}  {micros:>8.1f}  {verdict}"
            )
    finally:
        shutil.rmtree(OUT, ignore_errors=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
