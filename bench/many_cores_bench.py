"""Many cores: Apache Kafka 3.9.1 beside `tidelog serve --processes`, under the same clients.

    python -m bench.many_cores_bench [--processes N|auto] [--seconds S] [--rounds R] [--only PART ...]

The broker, all its processes and threads, is pinned to one half of the cores, the clients to the other half; with two cores each
has one. Clients are up to eight processes of the raw client in C, and each of their connections has a partition of its own, which
it asks at the partition's leader. A row is the median of some rounds in turn. What was acknowledged is compared with what was
stored: a round in which they differ is left out, and said.

`cpu` is the broker's processor time: microseconds per request, or seconds per gigabyte.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.broker.cases import MB, new_topic
from bench.broker.clients import RawClient, Result
from bench.broker.peers import Peer
from bench.broker.processor_time import children_seconds, own_seconds
from bench.broker.requests import (
    FETCH_VERSION,
    FIRST_MS,
    LIST_OFFSETS_VERSION,
    PRODUCE_VERSION,
    batch,
    fetch_request,
    frame,
    list_offsets_request,
    produce_request,
    records_for,
)
from bench.charts.figures import Figure, note
from bench.children.scratch import scratch

OUT = scratch("many-cores")
MOST_CLIENTS = 8
READY_S = 60
WARM_UP_S = 5.0
RECORD_BYTES = 100
LOOKED_UP = 16
"""The partitions of the rows that look offsets up."""


class Load(NamedTuple):
    """What clients do: the frames of each connection, with the partition that they are for."""

    topic: str
    frames: Sequence[tuple[int, bytes]]
    depth: int
    records: int = 0
    """Records of each request, which must be stored; 0 for reads."""


class Row(NamedTuple):
    """A line of the table."""

    name: str
    is_bulk: bool
    """Whether megabytes count, not requests."""
    load: Callable[[Peer], Load]


class Round(NamedTuple):
    """The figures of one round."""

    rate: float
    cpu: float
    p50_us: float
    p99_us: float


def rows(fetched: int) -> list[Row]:
    """Return the table. `fetched` is how many megabytes a fetching connection reads in a circle."""
    made = [
        Row(f"produce {size >> 10} KiB, {connections} connections", True, producing(min(size, 1_000_000), connections, 5))
        for size in (1 << 20, 65_536, 16_384)
        for connections in (1, 16)
    ]
    made += [Row(f"one record, {connections} connections", False, producing(0, connections, 1)) for connections in (16, 64)]
    made += [
        Row(f"list offsets by time, {connections} connections", False, looking_up(connections)) for connections in (1, 16, 64)
    ]
    made += [Row(f"fetch 1 MiB, {connections} connections", True, fetching(connections, fetched)) for connections in (1, 8, 16)]
    return made


def producing(batch_bytes: int, connections: int, depth: int) -> Callable[[Peer], Load]:
    records = records_for(batch_bytes, RECORD_BYTES) if batch_bytes else 1

    def load(peer: Peer) -> Load:
        data, topic = batch(records, RECORD_BYTES), new_topic(peer, connections)
        frames = [(one, frame(produce_request(topic, data, one, acks=1), PRODUCE_VERSION)) for one in range(connections)]
        store(peer, topic, frames)
        return Load(topic, frames, depth, records)

    return load


def looking_up(connections: int, batches: int = 100) -> Callable[[Peer], Load]:
    records = records_for(16_384, RECORD_BYTES)

    def load(peer: Peer) -> Load:
        topic = new_topic(peer, LOOKED_UP)
        first = batch(1, RECORD_BYTES, first_ms=FIRST_MS - 1)
        store(peer, topic, [(one, frame(produce_request(topic, first, one), PRODUCE_VERSION)) for one in range(LOOKED_UP)])
        for one in range(LOOKED_UP):
            filled = (batch(records, RECORD_BYTES, first_ms=FIRST_MS + number * records) for number in range(batches))
            run_once(peer, topic, one, [frame(produce_request(topic, data, one), PRODUCE_VERSION) for data in filled])
        frames = []
        for connection in range(connections):
            times = (FIRST_MS + (number * 7919 + connection * 31) % (batches * records) for number in range(200))
            asked = (list_offsets_request(topic, {connection % LOOKED_UP: at}) for at in times)
            frames.append((connection % LOOKED_UP, b"".join(frame(one, LIST_OFFSETS_VERSION) for one in asked)))
        return Load(topic, frames, 1)

    return load


def fetching(connections: int, megabytes: int) -> Callable[[Peer], Load]:
    records = records_for(1_000_000, RECORD_BYTES)

    def load(peer: Peer) -> Load:
        topic, data = new_topic(peer, connections), batch(records, RECORD_BYTES)
        written = [(one, frame(produce_request(topic, data, one), PRODUCE_VERSION)) for one in range(connections)]
        store(peer, topic, written)
        for one, request in written:
            run_once(peer, topic, one, [request] * megabytes)
        wanted = range(0, megabytes * records, records)
        return Load(
            topic,
            [
                (one, b"".join(frame(fetch_request(topic, at, 1 << 20, one), FETCH_VERSION) for at in wanted))
                for one in range(connections)
            ],
            2,
        )

    return load


# --- running


def ports(peer: Peer, topic: str) -> dict[int, int]:
    """Return the port of each partition's leader."""
    found = peer.admin.list_topics(topic, timeout=READY_S)
    return {one.id: found.brokers[one.leader].port for one in found.topics[topic].partitions.values()}


def run_once(peer: Peer, topic: str, partition: int, frames: Sequence[bytes]) -> None:
    RawClient(ports(peer, topic)[partition], [b"".join(frames)], depth=5, count=len(frames), name="once").result()


def store(peer: Peer, topic: str, frames: Iterable[tuple[int, bytes]]) -> None:
    """Produce to each partition until it stores: right after its creation a broker answers errors, which count as answers."""
    until = time.monotonic() + READY_S
    for partition, request in frames:
        while not stored(peer, topic, [partition]):
            if time.monotonic() > until:
                raise RuntimeError(f"{peer.name}: partition {partition} of {topic} stores nothing")
            run_once(peer, topic, partition, [request])


def stored(peer: Peer, topic: str, partitions: Iterable[int]) -> int:
    leaders = ports(peer, topic)
    return sum(peer.high_watermark(topic, one, leaders[one]) for one in partitions)


def measure(peer: Peer, load: Load, seconds: float, *, is_bulk: bool, number: int) -> Round | None:
    """Run the clients; None, with a line, if the broker stored less than it acknowledged."""
    leaders = ports(peer, load.topic)
    before = stored(peer, load.topic, leaders) if load.records else 0
    by_port: dict[int, list[bytes]] = {}
    for partition, frames in load.frames:
        by_port.setdefault(leaders[partition], []).append(frames)
    each = max(1, MOST_CLIENTS // len(by_port))
    shares = [(port, all_[start::each]) for port, all_ in by_port.items() for start in range(min(each, len(all_)))]
    began = seconds_of(peer)
    clients = [
        RawClient(port, share, depth=load.depth, seconds=seconds, name=f"c{number}-{place}")
        for place, (port, share) in enumerate(shares)
    ]
    results: list[Result] = [client.result() for client in clients]
    cpu = seconds_of(peer) - began
    lasted, requests, size = (
        max(one.seconds for one in results),
        sum(one.requests for one in results),
        sum(one.bytes for one in results),
    )
    if load.records:
        kept = (stored(peer, load.topic, leaders) - before) / load.records
        if kept < requests:
            print(f"  {peer.name}: {requests} requests acknowledged, {kept:.0f} stored: left out", flush=True)
            return None
    return Round(
        size / MB / lasted if is_bulk else requests / lasted,
        cpu / (size / 1e9) if is_bulk else cpu / requests * 1e6,
        statistics.median(one.p50_us or 0 for one in results),
        max(one.p99_us or 0 for one in results),
    )


def seconds_of(peer: Peer) -> float:
    return own_seconds(peer.process.pid) + children_seconds(peer.process.pid)


def pin(pid: int, cores: set[int]) -> None:
    """Pin a process, its threads and its children."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), cores)
        for child in (task / "children").read_text().split():
            pin(int(child), cores)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.many_cores_bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", default="auto", help="of Tidelog: a number, or auto, for one on each core of its half")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fetched", type=int, default=60, help="megabytes that each fetching connection reads in a circle")
    parser.add_argument("--only", nargs="*", default=[], help="parts of rows' names")
    options = parser.parse_args(arguments)
    cores = sorted(os.sched_getaffinity(0))
    ours, theirs = set(cores[: len(cores) // 2] or cores), set(cores[len(cores) // 2 :])
    count = str(len(ours)) if options.processes == "auto" else options.processes
    more = ["--processes", count] if count != "1" else []
    shutil.rmtree(OUT, ignore_errors=True)
    os.sched_setaffinity(0, theirs)
    print(f"{len(cores)} cores: brokers on {len(ours)}, clients on {len(theirs)}; Tidelog: {count} processes", flush=True)
    with Peer("kafka", OUT / "kafka") as kafka, Peer("tidelog", OUT / "tidelog", more=more) as tidelog:
        both = (kafka, tidelog)
        for peer in both:
            pin(peer.process.pid, ours)
            measure(peer, producing(16_384, 16, 1)(peer), WARM_UP_S, is_bulk=True, number=0)
            pin(peer.process.pid, ours)  # Threads that came meanwhile.
        print(
            f"{'':36} {'Kafka':>10} {'Tidelog':>10}  ratio   {'cpu':>8}  {'':>8}  {'p50, µs':>7} {'':>7}  {'p99, µs':>7}",
            flush=True,
        )
        is_behind = False
        for row in rows(options.fetched):
            if not options.only or any(part in row.name for part in options.only):
                is_behind |= report(row, both, options.seconds, options.rounds)
    shutil.rmtree(OUT, ignore_errors=True)
    return int(is_behind)


def report(row: Row, both: tuple[Peer, Peer], seconds: float, rounds: int) -> bool:
    """Measure and print a row. Return whether Tidelog is behind."""
    loads = [(peer, row.load(peer)) for peer in both]
    found: dict[str, list[Round]] = {peer.name: [] for peer in both}
    for number in range(rounds):
        for peer, load in loads:
            one = measure(peer, load, seconds, is_bulk=row.is_bulk, number=number)
            if one is not None:
                found[peer.name].append(one)
    for peer, load in loads:
        peer.delete_topic(load.topic)
    if not all(found.values()):
        return True
    theirs, mine = (Round(*map(statistics.median, zip(*found[peer.name], strict=True))) for peer in both)
    ratio = mine.rate / theirs.rate
    print(
        f"{row.name:36} {theirs.rate:10,.0f} {mine.rate:10,.0f}  {ratio:5.2f}   {theirs.cpu:8.2f}→ {mine.cpu:8.2f}"
        f"  {theirs.p50_us:7.0f}→{mine.p50_us:7.0f}  {theirs.p99_us:7.0f}→{mine.p99_us:7.0f}",
        flush=True,
    )
    unit = "MB/s" if row.is_bulk else "req/s"
    note("many-cores", Figure(row.name, theirs.rate, mine.rate, unit, target=1, processor=(theirs.cpu, mine.cpu)))
    return ratio < 1


if __name__ == "__main__":
    sys.exit(main())
