"""Makes logs to compact, and measures how long a broker's cleaner takes; used by `bench.broker.compaction_bench` and a row of the
stall bench.

The topic is filled while min.compaction.lag.ms prevents compaction. Then this setting is removed, and the time runs until the
cleaner's checkpoint has every partition at its active segment.
"""

from __future__ import annotations

import functools
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from tests.kafka.java import wait_until

from bench.broker.cases import Measure, Run, new_topic
from bench.broker.peers import Peer
from bench.broker.prober import exactly
from bench.broker.requests import FIRST_MS, PRODUCE_VERSION, frame
from tidelog.formats.checkpoints import read_offset_checkpoint
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.records import Record
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

CHECKPOINT = "cleaner-offset-checkpoint"
PROPERTIES = {
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "134217728",
    "log.initial.task.delay.ms": "1000",
    "log.cleaner.threads": "1",
}
LAG_MS = 10**13
"""A lag longer than the age of the records, whose timestamps are long past."""
PATIENCE_S = 1800
DEPTH = 5
A_REQUEST_PARTITIONS = 100


@functools.cache
def dirty_batches(megabytes: float, batch_records: int, value_bytes: int, keys: int, codec: Codec = Codec.NONE) -> list[bytes]:
    """Return batches of `megabytes` MB in total before compression, with random keys."""
    draw = random.Random(7)
    batches, size = [], 0
    while size < megabytes * 1e6:
        records = [
            Record(
                i,
                FIRST_MS,
                CREATE_TIME,
                b"key-%08d" % draw.randrange(keys),
                b"%020d" % draw.getrandbits(64) * (value_bytes // 20),
            )
            for i in range(batch_records)
        ]
        batches.append(bytes(build_batch_v2(records, codec=codec)))
        size += batch_records * (value_bytes + 20)
    return batches


def fill(peer: Peer, topic: str, partitions: int, batches: list[bytes]) -> None:
    """Append `batches` to each partition, a few requests at a time."""
    frames = []
    for one in batches:
        for first in range(0, partitions, A_REQUEST_PARTITIONS):
            chosen = range(first, min(first + A_REQUEST_PARTITIONS, partitions))
            data = [PartitionProduceData(index=index, records=one) for index in chosen]
            request = ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
            frames.append(frame(request, PRODUCE_VERSION))
    with socket.create_connection(("127.0.0.1", peer.port), timeout=PATIENCE_S) as connection:
        for number, sent in enumerate(frames):
            connection.sendall(sent)
            if number >= DEPTH:
                _answer(connection)
        for _ in frames[-DEPTH:]:
            _answer(connection)


def _answer(connection: socket.socket) -> None:
    (size,) = struct.unpack(">i", exactly(connection, 4))
    exactly(connection, size)


def allow(peer: Peer, topic: str) -> None:
    """Allow compaction of the topic from now on."""
    entry = ConfigEntry("min.compaction.lag.ms", "0", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    peer.admin.incremental_alter_configs([resource])[resource].result(60)


def goals(peer: Peer, topic: str, partitions: int) -> tuple[dict[tuple[str, int], int], int]:
    """Return the base offset of each partition's active segment, where compaction will end, and the bytes of the log before
    it.
    """
    found, size = {}, 0
    for partition in range(partitions):
        *dirty, active = sorted((peer.data / f"{topic}-{partition}").glob("*.log"))
        found[topic, partition] = int(active.stem)
        size += sum(path.stat().st_size for path in dirty)
    if not size:
        raise RuntimeError(f"{peer.name}: {topic} has nothing to compact")
    return found, size


def are_reached(data: Path, wanted: dict[tuple[str, int], int]) -> bool:
    """Whether the cleaner's checkpoint has reached these offsets."""
    path = data / CHECKPOINT
    offsets = (
        {(key.topic, key.partition): offset for key, offset in read_offset_checkpoint(path).items()} if path.exists() else {}
    )
    return all(offsets.get(key, 0) >= offset for key, offset in wanted.items())


@contextmanager
def dirty_topic(peer: Peer, partitions: int, segment_bytes: int, batches: list[bytes]) -> Iterator[str]:
    """Make a topic, and fill it without compacting it."""
    topic = new_topic(
        peer,
        partitions,
        cleanup_policy="compact",
        segment_bytes=str(segment_bytes),
        min_cleanable_dirty_ratio="0.01",
        min_compaction_lag_ms=str(LAG_MS),
        max_message_bytes="10000000",
    )
    folders = [peer.data / f"{topic}-{number}" for number in range(partitions)]
    wait_until(lambda: all(folder.exists() for folder in folders), f"{peer.name} to create {topic}", PATIENCE_S)
    fill(peer, topic, partitions, batches)
    yield topic
    peer.delete_topic(topic)


def compaction(
    partitions: int,
    segment_bytes: int,
    megabytes: float,
    batch_records: int,
    value_bytes: int,
    keys: int,
    codec: Codec = Codec.NONE,
) -> object:
    """MB/s of log, from when the cleaner may begin until nothing is dirty; `megabytes` is the size of one partition."""

    @contextmanager
    def prepare(peer: Peer) -> Iterator[Run]:
        batches = dirty_batches(megabytes, batch_records, value_bytes, keys, codec)

        def run() -> Measure:
            with dirty_topic(peer, partitions, segment_bytes, batches) as topic:
                wanted, size = goals(peer, topic, partitions)
                before, began = peer.cpu_seconds(), time.monotonic()
                allow(peer, topic)
                wait_until(lambda: are_reached(peer.data, wanted), f"{peer.name} to compact {topic}", PATIENCE_S)
                seconds = time.monotonic() - began
                return Measure(size / 1e6 / seconds, (peer.cpu_seconds() - before) / (size / 1e9))

        yield run

    return prepare


def compacted(megabytes: float, partitions: int) -> Callable[[Peer, float], Iterator[None]]:
    """The attack of a row of the stall bench: a large log and many small ones are compacted."""

    def attack(peer: Peer, scale: float) -> Iterator[None]:
        many = max(10, int(partitions * scale))
        large, small = dirty_batches(max(20, megabytes * scale), 140, 100, 100_000), dirty_batches(0.06, 40, 100, 5)
        with dirty_topic(peer, 1, 8 << 20, large) as one, dirty_topic(peer, many, 20_000, small) as other:
            wanted = {**goals(peer, one, 1)[0], **goals(peer, other, many)[0]}
            yield
            allow(peer, one)
            allow(peer, other)
            wait_until(lambda: are_reached(peer.data, wanted), f"{peer.name} to compact", PATIENCE_S)

    return attack
