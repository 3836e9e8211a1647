"""How much slower a small producer gets beside bulk work of other clients, compared with Apache Kafka 3.9.1 in the same run.

    python -m bench.broker.fairness_bench [--runs 3] [--only PART …] [--scale 1.0] [--json]

One client produces a record of 100 B at a time: first alone, then while other clients do what the row says. The values are its
median and its 99th percentile beside them, divided by those alone. A row passes if each is at most 1.5, or at most Kafka's. The
last row is the speed of a reader from the disk, MB/s. `--only` takes parts of the rows' names; `--scale 0.3` is a trial. Needs
Java, Maven and a C compiler.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from bench.broker.cases import Case, Measure, Run, fill, forget_pages, new_topic
from bench.broker.clients import RawClient, raw
from bench.broker.dirty_logs import LAG_MS, PROPERTIES, allow, dirty_batches
from bench.broker.dirty_logs import fill as fill_dirty
from bench.broker.peers import Peer
from bench.broker.requests import FETCH_VERSION, PRODUCE_VERSION, batch, fetch_request, frame, produce_request, records_for
from bench.broker.side_by_side import KAFKA, TIDELOG, arguments_of, compare, middle
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

LIMIT = 1.5
BATCH_BYTES = 1_000_000
BEGUN_S = 0.3
"""How long the other clients run before the small producer is measured, in seconds."""

Begin = Callable[[float], Callable[[], object]]
"""Begins the other clients' work for so many seconds. What it returns waits for the end."""
Load = Callable[[Peer], AbstractContextManager[Begin]]


def beside(seconds: float, load: Load) -> object:
    """The small producer's times beside `load`, as multiples of its times alone."""

    @contextmanager
    def prepare(peer: Peer) -> Iterator[Run]:
        small = new_topic(peer)
        sent = frame(produce_request(small, batch(1, 100), acks=1), PRODUCE_VERSION)
        with load(peer) as begin:

            def run() -> Measure:
                alone = raw(peer.port, [sent], seconds=seconds)
                end = begin(seconds + BEGUN_S)
                threading.Event().wait(BEGUN_S)
                then = raw(peer.port, [sent], seconds=seconds)
                end()
                assert alone.p50_us and then.p50_us and alone.p99_us and then.p99_us
                return Measure(then.p50_us / alone.p50_us, None, then.p50_us, then.p99_us, then.p99_us / alone.p99_us)

            yield run
        peer.delete_topic(small)

    return prepare


def _clients(peer: Peer, frames: list[bytes], seconds: float, depth: int = 1) -> Callable[[], object]:
    return RawClient(peer.port, frames, depth=depth, seconds=seconds, name="others").result


def _reads(topic: str, batches: int, records: int, version: int = FETCH_VERSION) -> bytes:
    return b"".join(frame(fetch_request(topic, at * records, 1 << 20), version) for at in range(batches))


def readers(megabytes: int, connections: int, *, is_cold: bool, version: int = FETCH_VERSION) -> Load:
    """Consumers that read a topic, 1 MiB per request: from the disk, or from the page cache."""

    @contextmanager
    def load(peer: Peer) -> Iterator[Begin]:
        topic = new_topic(peer, 1, segment_bytes=str(64 << 20))
        frames = _reads(topic, *fill(peer, topic, BATCH_BYTES, megabytes), version)

        def begin(seconds: float) -> Callable[[], object]:
            if is_cold:
                forget_pages(peer, topic)
            return _clients(peer, [frames] * connections, seconds)

        yield begin
        peer.delete_topic(topic)

    return load


def producers(connections: int) -> Load:
    """Producers of batches of 1 MB, each to its own partition, with five requests in flight."""

    @contextmanager
    def load(peer: Peer) -> Iterator[Begin]:
        sent = batch(records_for(BATCH_BYTES, 100), 100)

        def begin(seconds: float) -> Callable[[], object]:
            topic = new_topic(peer, connections)
            frames = [frame(produce_request(topic, sent, p, acks=1), PRODUCE_VERSION) for p in range(connections)]
            end = _clients(peer, frames, seconds, depth=5)

            def over() -> None:
                end()
                peer.delete_topic(topic)

            return over

        yield begin

    return load


def wide_fetches(partitions: int, connections: int) -> Load:
    """Consumers that read a batch of 16 KiB from each of many partitions per request."""

    @contextmanager
    def load(peer: Peer) -> Iterator[Begin]:
        topic = new_topic(peer, partitions)
        sent = batch(records_for(16_384, 100), 100)
        for partition in range(partitions):
            one = frame(produce_request(topic, sent, partition), PRODUCE_VERSION)
            while not peer.high_watermark(topic, partition):  # Kafka lists a new leader before it accepts records.
                raw(peer.port, [one], count=1)
        wanted = [FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=16_384) for i in range(partitions)]
        of_topic = FetchTopic(topic=topic, partitions=wanted)
        asked = FetchRequest(replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, session_epoch=-1, topics=[of_topic])
        yield lambda seconds: _clients(peer, [frame(asked, FETCH_VERSION)] * connections, seconds)
        peer.delete_topic(topic)

    return load


def compaction(megabytes: float) -> Load:
    """The cleaner compacts a log. It is filled before each run."""

    @contextmanager
    def load(peer: Peer) -> Iterator[Begin]:
        batches = dirty_batches(megabytes, 140, 100, 100_000)
        config = {"cleanup_policy": "compact", "segment_bytes": str(8 << 20), "min_cleanable_dirty_ratio": "0.01"}
        topics: list[str] = []

        def refill() -> None:
            topics.append(new_topic(peer, 1, min_compaction_lag_ms=str(LAG_MS), **config))
            fill_dirty(peer, topics[-1], 1, batches)

        def begin(_: float) -> Callable[[], object]:
            allow(peer, topics[-1])
            return refill

        refill()
        yield begin
        for topic in topics:
            peer.delete_topic(topic)

    return load


def from_disk(megabytes: int, connections: int) -> object:
    """MB/s of consumers that together read a topic from the disk once, a request at a time each."""

    @contextmanager
    def prepare(peer: Peer) -> Iterator[Run]:
        topic = new_topic(peer, connections, segment_bytes=str(64 << 20))
        batches, records = fill(peer, topic, BATCH_BYTES, megabytes, connections)
        frames = [
            b"".join(frame(fetch_request(topic, at * records, 1 << 20, p), FETCH_VERSION) for at in range(batches))
            for p in range(connections)
        ]

        def run() -> Measure:
            forget_pages(peer, topic)
            before = peer.cpu_seconds()
            result = raw(peer.port, frames, count=batches * connections)
            cpu = (peer.cpu_seconds() - before) / (result.bytes / 1e9)
            return Measure(result.bytes / 1e6 / result.seconds, cpu, result.p50_us, result.p99_us)

        yield run
        peer.delete_topic(topic)

    return prepare


def catalogue(scale: float) -> list[Case]:
    """Return the rows; `scale` multiplies bytes and seconds."""
    s, mb = max(0.5, 3 * scale), max(20, int(1000 * scale))
    rows = [
        ("a reader of 1 GB from the disk", readers(mb, 1, is_cold=True)),
        ("four readers of 1 MiB from memory", readers(min(mb, 200), 4, is_cold=False)),
        ("four readers of format v1, converted", readers(20, 4, is_cold=False, version=2)),
        ("16 producers of 1 MB batches", producers(16)),
        ("four fetches of 1,000 partitions", wide_fetches(1000, 4)),
        ("compaction of 200 MB", compaction(max(20, 200 * scale))),
    ]
    cases = [Case(f"beside {name}", "× alone", LIMIT, False, beside(s, load)) for name, load in rows]  # type: ignore[arg-type]
    for count in (1, 4):
        prepare = from_disk(mb, count)
        cases.append(Case(f"from the disk, {count} at a time", "MB/s", None, True, prepare))  # type: ignore[arg-type]
    return cases


def report(case: Case, turns: dict[str, list[Measure]], *, as_json: bool) -> bool:
    """Print a row's line. Return whether it is missed."""
    medians = {name: middle(measures) for name, measures in turns.items()}
    ours, theirs = medians[TIDELOG], medians.get(KAFKA)
    is_missed = False
    if case.target is not None:
        for mine, other in ((ours.value, theirs and theirs.value), (ours.p99_times, theirs and theirs.p99_times)):
            is_missed |= (mine or 0.0) > max(case.target, other or 0.0)
    if as_json:
        shown = {name: [one._asdict() for one in measures] for name, measures in turns.items()}
        print(json.dumps({"case": case.name, "unit": case.unit, "is_missed": is_missed, **shown}), flush=True)
        return is_missed
    cells = []
    for one in (theirs, ours):
        values = "" if one is None else f"{one.value:,.2f}" + (f", {one.p99_times:,.2f}" if one.p99_times else "")
        cells.append(f"{values:>14} {'' if one is None else f'({one.p50_us or 0:,.0f}/{one.p99_us or 0:,.0f} µs)':<24}")
    print(f"{case.name:45} {cells[0]} {cells[1]}{' missed' if is_missed else ''}", flush=True)
    return is_missed


def main(arguments: list[str] | None = None) -> int:
    parser = arguments_of("a small producer beside bulk work, on Tidelog and on Apache Kafka 3.9.1")
    parser.set_defaults(warm_up=10.0)
    options = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    if not options.json:
        print(f"{'p50, p99 as multiples of alone (µs)':45} {'Kafka':>14} {'':24} {'Tidelog':>14}", flush=True)
    return compare(catalogue(options.scale), options, folder="{name}-fairness", properties=PROPERTIES, told=report)


if __name__ == "__main__":
    sys.exit(main())
