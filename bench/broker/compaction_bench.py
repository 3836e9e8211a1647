"""Compaction beside Apache Kafka 3.9.1's cleaner with one thread: MB/s of dirty log, one broker after the other, medians.

    python -m bench.broker.compaction_bench [--runs 3] [--only PART …] [--scale 1.0] [--json]

The time runs from when a topic may be compacted until the cleaner's checkpoint has every partition at its active segment. It
includes up to one log.cleaner.backoff.ms (0.2 s) of waiting. Processor time is the broker's, in seconds per gigabyte of log.
`--only` takes parts of the cases' names; `--scale 0.2` is a trial. Needs Java, Maven and a C compiler.
"""

from __future__ import annotations

import resource
import sys
from typing import Any

from bench.broker.cases import Case
from bench.broker.dirty_logs import PROPERTIES, compaction
from bench.broker.side_by_side import arguments_of, compare
from tidelog.records.compression import Codec

SEGMENT_BYTES = 8 << 20
KEYS = 100_000


def catalogue(scale: float) -> list[Case]:
    """Return the cases; `scale` multiplies the numbers of bytes and partitions."""
    mb = max(40, 400 * scale)
    many = max(20, int(2000 * scale))
    lines: list[tuple[str, str, float | None, bool, Any]] = [
        ("records of 100 B, 16 KiB batches", "MB/s", 1.0, True, compaction(1, SEGMENT_BYTES, mb, 140, 100, KEYS)),
        ("records of 1 KiB, 16 KiB batches", "MB/s", 1.0, True, compaction(1, SEGMENT_BYTES, mb, 16, 1000, KEYS)),
        ("records of 100 B, 16 KiB batches, lz4", "MB/s", 1.0, True, compaction(1, SEGMENT_BYTES, mb, 140, 100, KEYS, Codec.LZ4)),
        ("batches of one record of 100 B", "MB/s", 1.0, True, compaction(1, SEGMENT_BYTES, mb / 4, 1, 100, KEYS)),
        (f"{many:,} partitions of 60 KB", "MB/s", 0.5, True, compaction(many, 20_000, 0.06, 40, 100, 5)),
    ]
    return [Case(*line) for line in lines]


def main(arguments: list[str] | None = None) -> int:
    parser = arguments_of("compaction beside Apache Kafka 3.9.1's cleaner")
    parser.set_defaults(warm_up=5.0)
    options = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    return compare(catalogue(options.scale), options, table="compaction", folder="{name}-compaction", properties=PROPERTIES)


if __name__ == "__main__":
    sys.exit(main())
