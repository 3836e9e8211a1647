"""The rows of `bench.stall_bench`: each is an action of another client while a well-behaved client sends a request every 5 ms.

A row prepares a broker and then attacks it once; the prober's longest wait in the meantime is measured. Each row is a generator:
it prepares up to its `yield`, and attacks after it.
"""

from __future__ import annotations

import resource
import socket
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from json import loads
from typing import NamedTuple

from bench.broker.admin_stalls import AUTHORIZED, acls_created, acls_deleted, acls_described, altered, partitions_described
from bench.broker.cases import forget_pages
from bench.broker.dirty_logs import PROPERTIES as CLEANING
from bench.broker.dirty_logs import compacted
from bench.broker.fetch_stalls import SESSIONS, searches, sessions
from bench.broker.group_stalls import GATHERED, announcements, commits, joins
from bench.broker.peers import Peer
from bench.broker.prober import answer_to, exactly
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
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.records import Record
from tidelog.wire.headers import read_response
from tidelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest
from tidelog.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

PROPERTIES = {"auto.create.topics.enable": "true"}
TIMEOUT_S = 900
PROBED = "probed"
SETTLED_S = 0.5
A_REQUEST_PARTITIONS = 5_000
"""The number of partitions that one request creates in a preparation: Kafka accepts at most 10,000 metadata records."""


class Stall(NamedTuple):
    """The prober's result."""

    longest_ms: float
    p50_ms: float
    samples: int
    began_s: float = 0.0
    """When the attack began and ended, in epoch seconds."""
    ended_s: float = 0.0
    turn_ms: float | None = None
    """The longest turn of the broker's loop meanwhile, in processor time, if that was measured."""


Attack = Iterator[None]


class Row(NamedTuple):
    """`attack(peer, scale)` is a generator as described in the module's docstring. `probe` is the well-behaved client's
    request.
    """

    name: str
    attack: Callable[[Peer, float], Attack]
    probe: str = "list offsets"
    is_for_kafka: bool = True
    has_limit: bool = True
    properties: Mapping[str, str] = {}


def measure(peer: Peer, row: Row, scale: float) -> Stall:
    """Prepare a row, and run the prober during its attack."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    peer.create_topic(PROBED)
    small = frame(produce_request(PROBED, batch(1, 100), acks=1), PRODUCE_VERSION)
    ask(peer, small)
    probe = small if row.probe == "produce" else frame(list_offsets_request(PROBED, {0: -1}), LIST_OFFSETS_VERSION)
    running = row.attack(peer, scale)
    next(running)
    command = [sys.executable, "-m", "bench.broker.prober", str(peer.port), probe.hex()]
    prober = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert prober.stdin is not None and prober.stdout is not None
    try:
        if prober.stdout.readline().strip() != "ready":
            raise RuntimeError("the prober did not begin")
        time.sleep(SETTLED_S)
        began = time.time()
        next(running, None)
        time.sleep(SETTLED_S)
        prober.stdin.close()
        return Stall(**loads(prober.stdout.read()), began_s=began, ended_s=time.time())
    finally:
        prober.kill()
        prober.wait()
        prober.stdout.close()


def ask(peer: Peer, *frames: bytes, depth: int = 1) -> bytearray:
    """Send requests over one connection, up to `depth` at a time; return the last response."""
    with socket.create_connection(("127.0.0.1", peer.port), timeout=TIMEOUT_S) as connection:
        answer = bytearray()
        for at in range(0, len(frames), depth):
            together = frames[at : at + depth]
            if depth == 1:
                answer = answer_to(connection, together[0])
                continue
            connection.sendall(b"".join(together))
            for _ in together:
                (size,) = struct.unpack(">i", exactly(connection, 4))
                answer = exactly(connection, size)
        return answer


def create_frame(names: list[str], partitions: int, **config: str) -> bytes:
    configs = [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in config.items()]
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs) for name in names]
    return frame(CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_S * 1000), 4)


def create(peer: Peer, names: list[str], partitions: int = 1, **config: str) -> None:
    """Create topics, several in one request, and wait until they have leaders."""
    step = max(1, A_REQUEST_PARTITIONS // partitions)
    for at in range(0, len(names), step):
        answer = read_response(
            CreateTopicsResponse, 4, memoryview(ask(peer, create_frame(names[at : at + step], partitions, **config)))
        )
        refused = {one.error_code for one in answer[1].topics if one.error_code}
        if refused:
            raise RuntimeError(f"{peer.name} refused to create topics: {refused}")
    deadline = time.monotonic() + TIMEOUT_S
    while not all(peer._is_led(name, partitions) for name in names[-1:]) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(SETTLED_S)


def produce_all(topic: str, partitions: int, records: bytes) -> bytes:
    """One batch for each partition, in one request."""
    data = [PartitionProduceData(index=index, records=records) for index in range(partitions)]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    return frame(ProduceRequest(acks=1, timeout_ms=TIMEOUT_S * 1000, topic_data=topics), PRODUCE_VERSION)


# --- rows: topics ---------------------------------------------------------------------------------------------------------


def metadata_creates(topics: int) -> Callable[[Peer, float], Attack]:
    def attack(peer: Peer, scale: float) -> Attack:
        names = [MetadataRequestTopic(name=f"auto-{i}") for i in range(max(1, int(topics * scale)))]
        sent = frame(MetadataRequest(topics=names, allow_auto_topic_creation=True), 8)
        yield
        ask(peer, sent)
        time.sleep(1)

    return attack


def deletes(topics: int, partitions: int) -> Callable[[Peer, float], Attack]:
    def attack(peer: Peer, scale: float) -> Attack:
        names = [f"going-{i}" for i in range(max(1, int(topics * scale)))]
        create(peer, names, partitions)
        for name in names:
            ask(peer, produce_all(name, partitions, batch(1, 100)))
        yield
        ask(peer, frame(DeleteTopicsRequest(topic_names=names, timeout_ms=TIMEOUT_S * 1000), 4))
        time.sleep(3)

    return attack


def creates(topics: int, partitions: int) -> Callable[[Peer, float], Attack]:
    def attack(peer: Peer, scale: float) -> Attack:
        sent = create_frame([f"coming-{i}" for i in range(topics)], max(1, int(partitions * scale)))
        yield
        ask(peer, sent)
        time.sleep(1)

    return attack


# --- rows: work for the processor -----------------------------------------------------------------------------------------


def bomb(partitions: int, unpacked_mb: int, codec: Codec = Codec.ZSTD) -> Callable[[Peer, float], Attack]:
    def attack(peer: Peer, scale: float) -> Attack:
        wanted = max(1, int(partitions * scale))
        create(peer, ["bombed"], wanted)
        value = bytes(100_000)
        made = [Record(i, FIRST_MS + i, CREATE_TIME, None, value) for i in range(unpacked_mb * 10)]
        sent = produce_all("bombed", wanted, bytes(build_batch_v2(made, codec=codec)))
        yield
        ask(peer, sent)

    return attack


def wide(kind: str, elements: int) -> Callable[[Peer, float], Attack]:
    """One request that names this many unknown partitions or topics."""

    def attack(peer: Peer, scale: float) -> Attack:
        count = int(elements * scale)
        if kind == "Fetch":
            fetched = [FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=1000) for i in range(count)]
            topic = FetchTopic(topic="missing", partitions=fetched)
            sent = frame(
                FetchRequest(replica_id=-1, max_wait_ms=0, max_bytes=1 << 20, session_epoch=-1, topics=[topic]), FETCH_VERSION
            )
        elif kind == "ListOffsets":
            asked = [ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(count)]
            sent = frame(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="missing", partitions=asked)]), 7)
        elif kind == "Metadata":
            names = [MetadataRequestTopic(name=f"no-{i}") for i in range(count)]
            sent = frame(MetadataRequest(topics=names, allow_auto_topic_creation=False), 8)
        else:
            version = 12 if kind == "Metadata by id" else 10
            ids = [MetadataRequestTopic(name=None, topic_id=uuid.UUID(int=i + 1)) for i in range(count)]
            sent = frame(MetadataRequest(topics=ids, allow_auto_topic_creation=False), version)
        yield
        ask(peer, sent)

    return attack


def over_partitions(kind: str, partitions: int, *, is_cold: bool) -> Callable[[Peer, float], Attack]:
    """One request over many partitions with one batch each, none of which was read since the broker's start."""

    def attack(peer: Peer, scale: float) -> Attack:
        count = max(1, int(partitions * scale))
        create(peer, ["many"], count)
        sent = batch(records_for(16_000, 100), 100)
        for at in range(0, count, 1000):
            data = [PartitionProduceData(index=i, records=sent) for i in range(at, min(at + 1000, count))]
            ask(
                peer,
                frame(
                    ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[TopicProduceData(name="many", partition_data=data)]),
                    PRODUCE_VERSION,
                ),
            )
        peer.process.stop()
        peer.process.start()
        wait = time.monotonic() + TIMEOUT_S
        while not peer.answers_metadata() or not peer._is_led("many", count):
            if time.monotonic() > wait:
                raise RuntimeError(f"{peer.name} is not back")
            time.sleep(0.2)
        if is_cold:
            forget_pages(peer, "many")
        if kind == "Fetch":
            wanted = [FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=1 << 20) for i in range(count)]
            request = FetchRequest(
                replica_id=-1,
                max_wait_ms=0,
                max_bytes=50 << 20,
                session_epoch=-1,
                topics=[FetchTopic(topic="many", partitions=wanted)],
            )
            sent = frame(request, FETCH_VERSION)
        else:
            sent = frame(list_offsets_request("many", dict.fromkeys(range(count), FIRST_MS + 50)), LIST_OFFSETS_VERSION)
        yield
        ask(peer, sent)

    return attack


def log_dirs(pipelined: int, partitions: int) -> Callable[[Peer, float], Attack]:
    def attack(peer: Peer, scale: float) -> Attack:
        create(peer, ["many"], max(1, int(partitions * scale)))
        sent = frame(DescribeLogDirsRequest(topics=None), 1)
        yield
        ask(peer, *[sent] * pipelined, depth=pipelined)

    return attack


# --- rows: the disk -------------------------------------------------------------------------------------------------------


def rolls(count: int) -> Callable[[Peer, float], Attack]:
    """A produce to many partitions, each of which rolls a segment."""

    def attack(peer: Peer, scale: float) -> Attack:
        partitions = max(1, int(count * scale))
        create(peer, ["rolling"], partitions, segment_bytes="20000")
        sent = produce_all("rolling", partitions, batch(records_for(16_000, 100), 100))
        ask(peer, sent)
        yield
        ask(peer, sent)

    return attack


def retention(segments: int) -> Callable[[Peer, float], Attack]:
    """A topic whose segments are all due at the next retention run."""

    def attack(peer: Peer, scale: float) -> Attack:
        create(peer, ["due"], 1, segment_bytes="20000", retention_ms="3000", file_delete_delay_ms="0")
        sent = frame(produce_request("due", batch(records_for(16_000, 100), 100)), PRODUCE_VERSION)
        ask(peer, *[sent] * max(2, int(segments * scale)))
        yield
        time.sleep(8)

    return attack


def flushed_produce(seconds: float) -> Callable[[Peer, float], Attack]:
    def attack(peer: Peer, scale: float) -> Attack:
        create(peer, ["flushed"], 1, flush_messages="1")
        sent = frame(produce_request("flushed", batch(1, 100)), PRODUCE_VERSION)
        yield
        until = time.monotonic() + max(1.0, seconds * scale)
        while time.monotonic() < until:
            ask(peer, *[sent] * 20)

    return attack


def cold_reader(megabytes: int) -> Callable[[Peer, float], Attack]:
    """A consumer reads a topic that is not in the page cache."""

    def attack(peer: Peer, scale: float) -> Attack:
        create(peer, ["cold"], 1, segment_bytes=str(64 << 20))
        count = records_for(1_000_000, 100)
        produced = frame(produce_request("cold", batch(count, 100)), PRODUCE_VERSION)
        batches = max(4, int(megabytes * scale))
        ask(peer, *[produced] * batches)
        forget_pages(peer, "cold")
        yield
        ask(peer, *[frame(fetch_request("cold", i * count, 1 << 20), FETCH_VERSION) for i in range(batches)])

    return attack


RETENTION_SOON = {"log.retention.check.interval.ms": "1000"}

ROWS: tuple[Row, ...] = (
    Row("Metadata creates 200 topics", metadata_creates(200)),
    Row("Metadata creates 1,000 topics", metadata_creates(1000)),
    Row("Metadata creates 4,900 topics", metadata_creates(4900), is_for_kafka=False),
    Row("DeleteTopics, 300 topics of 13 partitions", deletes(300, 13)),
    Row("CreateTopics, 9,900 partitions", creates(1, 9900), is_for_kafka=False),
    Row("Produce, 100 batches of zstd that unpack to 90 MB each", bomb(100, 90), is_for_kafka=False),
    Row("Produce, 10 batches of zstd that unpack to 90 MB each", bomb(10, 90)),
    Row("Produce, 10 batches of lz4 that unpack to 90 MB each", bomb(10, 90, Codec.LZ4)),
    Row("ListOffsets by time over 1,000 cold partitions", over_partitions("ListOffsets", 1000, is_cold=True)),
    Row("Fetch over 1,000 cold partitions", over_partitions("Fetch", 1000, is_cold=True)),
    Row("1,000 fetch sessions of 1,000 partitions each", sessions(create, 1000, 1000), properties=SESSIONS),
    Row("ListOffsets by time in 20 batches that unpack to 90 MB each", searches(create, 20, 90)),
    Row("Fetch of 500,000 elements", wide("Fetch", 500_000)),
    Row("ListOffsets of 500,000 elements", wide("ListOffsets", 500_000)),
    Row("Metadata of 500,000 elements", wide("Metadata", 500_000)),
    Row("Metadata of 500,000 ids", wide("Metadata by id", 500_000), is_for_kafka=False),
    Row("Metadata of 500,000 ids, refused", wide("Metadata refused", 500_000), is_for_kafka=False),
    Row("1,000 members of 30 KB join, and are assigned as much", joins(1000, 30_000), properties=GATHERED),
    Row("OffsetCommit, 9,900 times 4 KB of metadata", commits(9900, 4096)),
    Row("200 connections announce 100 MiB, and send 1 MB", announcements(200, 1_000_000), is_for_kafka=False),
    Row("CreateAcls, 9,900 entries", acls_created(9900), properties=AUTHORIZED),
    Row("CreateAcls, 100,000 entries, refused", acls_created(100_000), is_for_kafka=False, properties=AUTHORIZED),
    Row("8 DescribeAcls of 20,000 entries, pipelined", acls_described(20_000, 8), properties=AUTHORIZED),
    Row("DeleteAcls, 9,900 entries", acls_deleted(9900), properties=AUTHORIZED),
    Row("AlterClientQuotas, 9,900 clients", altered("quotas", 9900)),
    Row("AlterClientQuotas, 100,000 clients", altered("quotas", 100_000), is_for_kafka=False),
    Row("AlterUserScramCredentials, 9,900 users", altered("users", 9900)),
    Row("AlterUserScramCredentials, 100,000 users", altered("users", 100_000), is_for_kafka=False),
    Row("IncrementalAlterConfigs, 200,000 topics", altered("settings", 200_000), is_for_kafka=False),
    Row("32 DescribeTopicPartitions of 2,000, pipelined", partitions_described(create, 5000, 32)),
    Row("32 DescribeLogDirs over 5,000 partitions, pipelined", log_dirs(32, 5000)),
    Row("first ListOffsets by time over 5,000 partitions", over_partitions("ListOffsets", 5000, is_cold=False)),
    Row("retention of 250 segments", retention(250), properties=RETENTION_SOON),
    Row("compaction of 200 MB, and of 2,000 small partitions", compacted(200, 2000), properties=CLEANING),
    Row("300 rolls by one Produce", rolls(300)),
    Row("flush.messages=1 on another topic", flushed_produce(5)),
    Row("a consumer reads from disk, beside a small producer", cold_reader(1000), probe="produce"),
)
