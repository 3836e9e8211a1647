"""The cases. Each case prepares a broker, and then runs several times, on one broker after the other.

| measure | a run's value | better |
|---|---|---|
| MB/s | bytes of records as they are stored or served, per second | more |
| requests/s | | more |
| p50, p99 | microseconds of one request | less |

A produce run is checked by the high watermark, a fetch run by its bytes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

from bench.broker import clients
from bench.broker.clients import RawClient, Result, raw
from bench.broker.peers import Peer
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
from tidelog.records.compression import Codec

MB = 1_000_000
_names = count()


class Measure(NamedTuple):
    """One run. `cpu_s_per_gb` is the broker's processor time per gigabyte of records, or per million requests. `p99_times` is
    the second value of a run that compares two: see `fairness_bench`.
    """

    value: float
    cpu: float | None = None
    p50_us: float | None = None
    p99_us: float | None = None
    p99_times: float | None = None


Run = Callable[[], Measure]
Prepared = Callable[[Peer], "Iterator[Run]"]


class Case(NamedTuple):
    """`target` is the required ratio of Tidelog to Kafka: a minimum if more is better, otherwise a maximum. None: the ratio
    is only shown.
    """

    name: str
    unit: str
    target: float | None
    is_more_better: bool
    prepare: Callable[[Peer], contextmanager[Run]]  # type: ignore[valid-type]


def new_topic(peer: Peer, partitions: int = 1, **config: str) -> str:
    name = f"bench-{next(_names)}"
    peer.create_topic(name, partitions, {key.replace("_", "."): value for key, value in config.items()})
    return name


def check_end(peer: Peer, topic: str, expected: int, partitions: int = 1) -> None:
    found = sum(peer.high_watermark(topic, partition) for partition in range(partitions))
    if found != expected:
        raise RuntimeError(f"{peer.name}: {topic} ends at {found}, {expected} records were acknowledged")


# --- produce


def raw_produce(
    batch_bytes: int, megabytes: int, *, codec: Codec = Codec.NONE, depth: int = 5, record_bytes: int = 100
) -> object:
    """One batch is produced again and again, pipelined; MB/s of uncompressed records."""

    @contextmanager
    def prepare(peer: Peer) -> Iterator[Run]:
        records = records_for(batch_bytes, record_bytes)
        sent = batch(records, record_bytes, codec)
        plain_bytes = len(batch(records, record_bytes))
        requests = max(1, megabytes * MB // plain_bytes)

        def run() -> Measure:
            topic = new_topic(peer)
            before = peer.cpu_seconds()
            result = raw(peer.port, [frame(produce_request(topic, sent), PRODUCE_VERSION)], depth=depth, count=requests)
            cpu = peer.cpu_seconds() - before
            check_end(peer, topic, requests * records)
            peer.delete_topic(topic)
            gigabytes = requests * plain_bytes / 1e9
            return Measure(gigabytes * 1000 / result.seconds, cpu / gigabytes, result.p50_us, result.p99_us)

        yield run

    return prepare


def shared_produce(connections: int, seconds: float, value_of: Callable[[Result], float]) -> object:
    """Connections that each keep five requests with a 1 MB batch in flight, each to a different partition; see `Result`."""

    @contextmanager
    def prepare(peer: Peer) -> Iterator[Run]:
        sent = batch(records_for(1_000_000, 100), 100)

        def run() -> Measure:
            topic = new_topic(peer, connections)
            frames = [frame(produce_request(topic, sent, p, acks=1), PRODUCE_VERSION) for p in range(connections)]
            raw(peer.port, frames, count=connections)  # After this, each partition has its leader.
            before = peer.cpu_seconds()
            result = raw(peer.port, frames, depth=5, seconds=seconds)
            cpu = peer.cpu_seconds() - before
            peer.delete_topic(topic)
            return Measure(value_of(result), cpu / (result.bytes / 1e9), result.p50_us, result.p99_us)

        yield run

    return prepare


def megabytes_a_second(result: Result) -> float:
    return result.bytes / MB / result.seconds


def share_of_the_last(result: Result) -> float:
    """Return the responses of the connection that gets the fewest, in percent of the responses of the one that gets the most."""
    return 100 * result.fewest / max(1, result.most)


def longest_wait_us(result: Result) -> float:
    assert result.longest_us is not None
    return result.longest_us


def client_produce(client: str, record_bytes: int, partitions: int, records: int) -> object:
    """A real producer at full speed."""

    @contextmanager
    def prepare(peer: Peer) -> Iterator[Run]:
        def run() -> Measure:
            topic = new_topic(peer, partitions)
            before = peer.cpu_seconds()
            if client == "java":
                result = clients.java_produce(peer.bootstrap, topic, records, record_bytes)
            else:
                result = clients.librdkafka("produce", peer.port, topic, partitions, records, record_bytes, linger_ms="5")
            cpu = peer.cpu_seconds() - before
            check_end(peer, topic, records, partitions)
            peer.delete_topic(topic)
            return Measure(result.bytes / MB / result.seconds, cpu / (result.bytes / 1e9), None, result.p99_us)

        yield run

    return prepare


def small_produce(connections: int, seconds: float, *, by_latency: bool) -> object:
    """One record of 100 B at a time on each connection, each with its own partition, acks=1."""

    @contextmanager
    def prepare(peer: Peer) -> Iterator[Run]:
        topic = new_topic(peer, connections)
        sent = batch(1, 100)
        frames = [frame(produce_request(topic, sent, p, acks=1), PRODUCE_VERSION) for p in range(connections)]

        def run() -> Measure:
            before = peer.cpu_seconds()
            result = raw(peer.port, frames, seconds=seconds)
            return by_request(peer, before, result, by_latency=by_latency)

        yield run
        peer.delete_topic(topic)

    return prepare


def by_request(peer: Peer, cpu_before: float, result: Result, *, by_latency: bool = False) -> Measure:
    cpu = (peer.cpu_seconds() - cpu_before) / (result.requests / 1e6)
    assert result.p50_us is not None
    return Measure(result.p50_us if by_latency else result.requests / result.seconds, cpu, result.p50_us, result.p99_us)


# --- fetch


def fill(peer: Peer, topic: str, batch_bytes: int, megabytes: int, partitions: int = 1) -> tuple[int, int]:
    """Fill a topic; return batches per partition and records per batch."""
    records = records_for(batch_bytes, 100)
    sent = batch(records, 100)
    batches = max(1, megabytes * MB // len(sent) // partitions)
    for partition in range(partitions):
        raw(peer.port, [frame(produce_request(topic, sent, partition), PRODUCE_VERSION)], depth=5, count=batches)
    check_end(peer, topic, batches * records * partitions, partitions)
    return batches, records


def raw_fetch(megabytes: int, *, version: int = FETCH_VERSION, batch_bytes: int = 1 << 20, rounds: int = 4) -> object:
    """A topic is read repeatedly, 1 MiB per request, with two requests in flight."""

    @contextmanager
    def prepare(peer: Peer) -> Iterator[Run]:
        topic = new_topic(peer)
        batches, records = fill(peer, topic, min(batch_bytes, 1_000_000), megabytes)
        each = max(1, (1 << 20) // batch_bytes)
        offsets = range(0, batches * records, each * records)
        frames = b"".join(frame(fetch_request(topic, offset, 1 << 20), version) for offset in offsets)

        def run() -> Measure:
            before = peer.cpu_seconds()
            result = raw(peer.port, [frames], depth=2, count=rounds * len(offsets))
            cpu = peer.cpu_seconds() - before
            return Measure(result.bytes / MB / result.seconds, cpu / (result.bytes / 1e9), result.p50_us, result.p99_us)

        yield run
        peer.delete_topic(topic)

    return prepare


def client_consume(client: str, megabytes: int, batch_bytes: int = 1_000_000) -> object:
    """A real consumer with an assigned partition reads the topic from its beginning."""

    @contextmanager
    def prepare(peer: Peer) -> Iterator[Run]:
        topic = new_topic(peer)
        batches, records = fill(peer, topic, batch_bytes, megabytes)

        def run() -> Measure:
            before = peer.cpu_seconds()
            if client == "java":
                result = clients.java_consume(peer.bootstrap, topic, 1, batches * records)
            else:
                result = clients.librdkafka("consume", peer.port, topic, 1, batches * records, 0)
            cpu = peer.cpu_seconds() - before
            return Measure(result.bytes / MB / result.seconds, cpu / (result.bytes / 1e9))

        yield run
        peer.delete_topic(topic)

    return prepare


# --- by time


def list_offsets(connections: int, seconds: float, *, partitions: int = 1, batch_bytes: int = 16_384) -> object:
    """ListOffsets by time, at random times; each request names all partitions."""

    @contextmanager
    def prepare(peer: Peer) -> Iterator[Run]:
        topic = new_topic(peer, partitions)
        records = records_for(batch_bytes, 100)
        batches = max(20, 64 * MB // batch_bytes // partitions)
        for partition in range(partitions):
            # Times grow from batch to batch, as in a real log.
            sent = [batch(records, 100, first_ms=FIRST_MS + i * records) for i in range(min(batches, 200))]
            frames = b"".join(frame(produce_request(topic, one, partition), PRODUCE_VERSION) for one in sent)
            raw(peer.port, [frames], depth=5, count=len(sent))
        draw = random.Random(11)
        times = [FIRST_MS + draw.randrange(min(batches, 200) * records) for _ in range(512)]
        asked = [frame(list_offsets_request(topic, dict.fromkeys(range(partitions), t)), LIST_OFFSETS_VERSION) for t in times]

        def run() -> Measure:
            before = peer.cpu_seconds()
            result = raw(peer.port, [b"".join(asked[i:] + asked[:i]) for i in range(connections)], seconds=seconds)
            return by_request(peer, before, result)

        yield run
        peer.delete_topic(topic)

    return prepare


# --- together


def small_beside_bulk(seconds: float) -> object:
    """The p99 of small ListOffsets requests, one at a time, while a producer sends 64 KiB batches with five in flight."""

    @contextmanager
    def prepare(peer: Peer) -> Iterator[Run]:
        small = new_topic(peer)
        fill(peer, small, 16_384, 8)
        asked = frame(list_offsets_request(small, {0: FIRST_MS + 50}), LIST_OFFSETS_VERSION)

        def run() -> Measure:
            bulk = new_topic(peer)
            sent = frame(produce_request(bulk, batch(records_for(65_536, 100), 100)), PRODUCE_VERSION)
            before = peer.cpu_seconds()
            background = RawClient(peer.port, [sent], depth=5, seconds=seconds + 0.5, name="bulk")
            result = raw(peer.port, [asked], seconds=seconds)
            background.result()
            cpu = peer.cpu_seconds() - before
            peer.delete_topic(bulk)
            assert result.p99_us is not None
            return Measure(result.p99_us, cpu / (result.requests / 1e6), result.p50_us, result.p99_us)

        yield run
        peer.delete_topic(small)

    return prepare


def beside_cold_reader(seconds: float, megabytes: int) -> object:
    """How much slower a small request (p99) is while a consumer reads data that is not in the page cache: p99 with that
    consumer divided by p99 without.
    """

    @contextmanager
    def prepare(peer: Peer) -> Iterator[Run]:
        cold = new_topic(peer, 1, segment_bytes=str(64 << 20))
        batches, records = fill(peer, cold, 1_000_000, megabytes)
        offsets = range(0, batches * records, records)
        reads = b"".join(frame(fetch_request(cold, offset, 1 << 20), FETCH_VERSION) for offset in offsets)
        small = new_topic(peer)
        sent = frame(produce_request(small, batch(1, 100), acks=1), PRODUCE_VERSION)

        def run() -> Measure:
            alone = raw(peer.port, [sent], seconds=seconds)
            forget_pages(peer, cold)
            reader = RawClient(peer.port, [reads], depth=1, seconds=seconds, name="cold")
            beside = raw(peer.port, [sent], seconds=seconds)
            reader.result()
            assert alone.p50_us is not None and beside.p50_us is not None
            return Measure(beside.p50_us / alone.p50_us, None, beside.p50_us, beside.p99_us)

        yield run
        for topic in (cold, small):
            peer.delete_topic(topic)

    return prepare


def forget_pages(peer: Peer, topic: str) -> None:
    """Drop a topic's files from the page cache."""
    import os

    for path in sorted(peer.data.glob(f"{topic}-*/*.log")):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


def mixed_traffic(peer: Peer, seconds: float) -> None:
    """Run producers, readers and look-ups of all sizes for a while, before the broker's memory is measured."""
    end = time.monotonic() + seconds
    topic = new_topic(peer, 4)
    _, records = fill(peer, topic, 65_536, 64, 4)
    while time.monotonic() < end:
        running = [
            RawClient(peer.port, [frame(produce_request(topic, batch(1, 100), 0), PRODUCE_VERSION)], seconds=2, name="m1"),
            RawClient(
                peer.port,
                [frame(produce_request(topic, batch(records_for(1_000_000, 1000), 1000), 1), PRODUCE_VERSION)],
                depth=5,
                count=200,
                name="m2",
            ),
            RawClient(
                peer.port,
                [frame(fetch_request(topic, records * i, 1 << 20, i), FETCH_VERSION) for i in range(4)],
                depth=2,
                seconds=2,
                name="m3",
            ),
            RawClient(
                peer.port, [frame(list_offsets_request(topic, {2: FIRST_MS + 77}), LIST_OFFSETS_VERSION)], seconds=2, name="m4"
            ),
        ]
        for client in running:
            client.result()
    peer.delete_topic(topic)
