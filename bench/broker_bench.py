"""The broker compared with Apache Kafka 3.9.1: the same clients, one run, one broker after the other, medians.

    python -m bench.broker_bench [--runs 3] [--only PART …] [--scale 1.0] [--minutes 1] [--json]

`--only` takes parts of the cases' names. Needs Java, Maven and a C compiler. Both brokers run all the time, on the same disk; a
file of a gigabyte is written and removed before each run, so that both brokers get recycled memory. Processor time is the
broker's, in seconds per gigabyte of records, or per million requests. Use `--scale 0.2` for a trial run.
"""

from __future__ import annotations

import sys
from typing import Any

from bench.broker import cases
from bench.broker.cases import Case, Measure
from bench.broker.clients import OUT
from bench.broker.peers import Peer, seconds_to_first_metadata
from bench.broker.side_by_side import TIDELOG, arguments_of, compare, report
from tidelog.records.compression import Codec


def catalogue(scale: float) -> list[Case]:
    """Return the cases; `scale` multiplies bytes and seconds."""

    def mb(megabytes: float) -> int:
        return max(4, int(megabytes * scale))

    s = max(0.5, 3 * scale)
    lines: list[tuple[str, str, float | None, bool, Any]] = [
        ("produce raw, 1 MB batches", "MB/s", 2.0, True, cases.raw_produce(1_000_000, mb(1000))),
        ("produce raw, 64 KiB batches", "MB/s", 1.8, True, cases.raw_produce(65_536, mb(1000))),
        ("produce raw, 16 KiB batches", "MB/s", 1.8, True, cases.raw_produce(16_384, mb(500))),
        (
            "produce raw, 1 MB, 16 connections",
            "MB/s",
            None,
            True,
            cases.shared_produce(16, s, cases.megabytes_a_second),
        ),
        (
            "produce raw, 1 MB, 16 connections: the last's share",
            "%",
            0.8,
            True,
            cases.shared_produce(16, s, cases.share_of_the_last),
        ),
        (
            "produce raw, 1 MB, 16 connections: longest wait",
            "µs",
            None,
            False,
            cases.shared_produce(16, s, cases.longest_wait_us),
        ),
        ("produce raw, 1 MB batches, lz4", "MB/s", 1.7, True, cases.raw_produce(1_000_000, mb(1500), codec=Codec.LZ4)),
        ("produce librdkafka, 100 B, 1 partition", "MB/s", 1.0, True, cases.client_produce("rdkafka", 100, 1, mb(300) * 10_000)),
        (
            "produce librdkafka, 100 B, 12 partitions",
            "MB/s",
            1.0,
            True,
            cases.client_produce("rdkafka", 100, 12, mb(300) * 10_000),
        ),
        ("produce librdkafka, 1 KiB, 1 partition", "MB/s", 1.0, True, cases.client_produce("rdkafka", 1024, 1, mb(800) * 1000)),
        (
            "produce librdkafka, 1 KiB, 12 partitions",
            "MB/s",
            1.0,
            True,
            cases.client_produce("rdkafka", 1024, 12, mb(800) * 1000),
        ),
        ("produce Java, 100 B, 1 partition", "MB/s", 1.1, True, cases.client_produce("java", 100, 1, mb(150) * 10_000)),
        ("produce Java, 100 B, 12 partitions", "MB/s", 1.1, True, cases.client_produce("java", 100, 12, mb(150) * 10_000)),
        ("produce Java, 1 KiB, 1 partition", "MB/s", 1.1, True, cases.client_produce("java", 1024, 1, mb(400) * 1000)),
        ("produce Java, 1 KiB, 12 partitions", "MB/s", 1.1, True, cases.client_produce("java", 1024, 12, mb(400) * 1000)),
        ("fetch raw, 1 MiB", "MB/s", 1.3, True, cases.raw_fetch(mb(800))),
        ("fetch raw, 1 MiB of 16 KiB batches", "MB/s", None, True, cases.raw_fetch(mb(400), batch_bytes=16_384)),
        ("fetch raw, down-converted to v1", "MB/s", None, True, cases.raw_fetch(mb(20), version=2, rounds=1)),
        ("fetch raw, down-converted to v0", "MB/s", None, True, cases.raw_fetch(mb(20), version=1, rounds=1)),
        ("consume Java, assigned", "MB/s", 1.2, True, cases.client_consume("java", mb(800))),
        ("consume librdkafka, assigned", "MB/s", 1.0, True, cases.client_consume("rdkafka", mb(500))),
        ("one 100 B record, 1 connection, p50", "µs", 1.0, False, cases.small_produce(1, s, by_latency=True)),
        ("one 100 B record, 16 connections", "req/s", 0.8, True, cases.small_produce(16, s, by_latency=False)),
        ("list offsets by time, 1 connection", "req/s", 1.1, True, cases.list_offsets(1, s)),
        ("list offsets by time, 16 connections", "req/s", 0.8, True, cases.list_offsets(16, s)),
        ("list offsets by time, 100 partitions", "req/s", 1.0, True, cases.list_offsets(1, s, partitions=100)),
        ("small request beside 64 KiB producers, p99", "µs", 1.0, False, cases.small_beside_bulk(s)),
        ("small produce beside a cold reader, p50", "× alone", None, False, cases.beside_cold_reader(s, mb(1000))),
    ]
    return [Case(*line) for line in lines]


def main(arguments: list[str] | None = None) -> int:
    parser = arguments_of("the broker beside Apache Kafka 3.9.1")
    parser.add_argument(
        "--minutes", type=float, default=1.0, help="of mixed traffic before the memory is looked at; 0: not at all"
    )
    options = parser.parse_args(arguments)

    def last(names: list[str]) -> bool:
        if not options.only or any("start" in part or "memory" in part for part in options.only):
            return start_and_memory(names, options.runs, options.minutes, as_json=options.json)
        return False

    return compare(catalogue(options.scale), options, table="broker", last=last)


def start_and_memory(names: list[str], runs: int, minutes: float, *, as_json: bool) -> bool:
    """Measure start times, and private memory when idle and after traffic."""
    start: dict[str, list[Measure]] = {name: [] for name in names}
    idle: dict[str, list[Measure]] = {name: [] for name in names}
    after: dict[str, list[Measure]] = {name: [] for name in names}
    for name in names:
        peer = Peer(name, OUT / f"{name}-start")
        with peer:
            for turn in range(runs):
                peer.process.stop()
                start[name].append(Measure(seconds_to_first_metadata(peer)))
                idle[name].append(Measure(peer.private_mb()))
                if minutes and turn == runs - 1:
                    cases.mixed_traffic(peer, minutes * 60)
                    after[name].append(Measure(peer.private_mb()))
    lines = [
        (Case("start to first metadata", "s", 0.15, False, None), start),  # type: ignore[arg-type]
        (Case("private memory, idle", "MB", 0.25, False, None), idle),  # type: ignore[arg-type]
        (Case("private memory, after mixed traffic", "MB", 0.2, False, None), after),  # type: ignore[arg-type]
    ]
    missed = [report(case, turns, as_json=as_json) for case, turns in lines if turns[TIDELOG]]
    return any(missed)


if __name__ == "__main__":
    sys.exit(main())
