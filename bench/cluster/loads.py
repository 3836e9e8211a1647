"""The loads for a side: producing with acks=all, adding a replica that catches up, and requests one at a time.

Throughput is of records as clients count them; processor time is that of the three brokers, in seconds per GB of records, each of
which is stored three times.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from bench.broker import clients
from bench.cluster.sides import PATIENCE_S, Side, ask, waited
from tidelog.errors import ProtocolError
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)

GB = 1_000_000_000
SPREAD = [[0, 1, 2], [1, 2, 0], [2, 0, 1]] * 2
"""Six partitions: each broker leads two of them, and follows the other four."""


class Run(NamedTuple):
    """One run: its value (MB/s, or seconds), and the processor seconds of the side's brokers per GB."""

    value: float
    cpu_s_per_gb: float | None = None


def produce(side: Side, topic: str, client: str, record_bytes: int, megabytes: int) -> Run:
    """Load a topic of three replicas with acks=all; return MB/s."""
    side.create(topic, SPREAD, {"min.insync.replicas": "2"})
    records = megabytes * 1_000_000 // record_bytes
    spent = side.cpu_seconds()
    if client == "java":
        took = clients.java_produce(side.bootstrap, topic, records, record_bytes, batch_size="65536")
    else:
        took = clients.librdkafka("produce", side.first.port, topic, len(SPREAD), records, record_bytes, acks="all")
    spent = side.cpu_seconds() - spent
    waited(lambda: side.in_sync(topic, len(SPREAD)) == len(SPREAD[0]), f"replicas of {topic}")
    side.delete(topic)
    return Run(took.bytes / took.seconds / 1e6, spent * GB / took.bytes)


def catch_up(side: Side, topic: str, megabytes: int) -> Run:
    """Give a loaded topic of two replicas a third one; return the seconds until it is in sync with all partitions."""
    side.create(topic, [places[:2] for places in [[0, 1]] * 6])
    clients.librdkafka("produce", side.first.port, topic, 6, megabytes * 1000, 1000, acks="all")
    spent, began = side.cpu_seconds(), time.monotonic()
    wanted = [ReassignablePartition(partition, side.ids) for partition in range(6)]
    request = AlterPartitionReassignmentsRequest(timeout_ms=PATIENCE_S * 1000, topics=[ReassignableTopic(topic, wanted)])
    answer = ask(side.first, request, 0, AlterPartitionReassignmentsResponse)
    if answer.error_code or any(one.error_code for of_topic in answer.responses for one in of_topic.partitions):
        raise ProtocolError("the reassignment is refused", found=answer)
    waited(lambda: side.in_sync(topic, 6) == 3, f"the third replica of {topic}")
    seconds, spent = time.monotonic() - began, side.cpu_seconds() - spent
    side.delete(topic)
    return Run(seconds, spent * 1000 / megabytes)


Case = Callable[[Side, str], Run]


def loads(scale: float) -> dict[str, tuple[Case, str, float, float | None]]:
    """Return the cases by name, each with its unit, the smallest allowed ratio of speed, and the largest allowed ratio of
    processor time.
    """

    def mb(megabytes: float) -> int:
        return max(4, int(megabytes * scale))

    def producing(client: str, record_bytes: int, megabytes: int) -> Case:
        return lambda side, topic: produce(side, topic, client, record_bytes, megabytes)

    return {
        "produce librdkafka, 1 KiB": (producing("rdkafka", 1024, mb(300)), "MB/s", 1.3, 0.5),
        "produce librdkafka, 100 B": (producing("rdkafka", 100, mb(150)), "MB/s", 1.3, 0.5),
        "produce Java, 1 KiB": (producing("java", 1024, mb(300)), "MB/s", 1.3, 0.5),
        "produce Java, 100 B": (producing("java", 100, mb(100)), "MB/s", 1.3, 0.5),
        "a new replica catches up": (lambda side, topic: catch_up(side, topic, mb(300)), "s", 1.0, None),
    }
