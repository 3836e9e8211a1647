"""The topics of a soak, and what belongs to the number of a record: its place, time and value are computed, never kept."""

from __future__ import annotations

import time

ORDERS, APPENDED, TRANSACTED, HISTORY = "orders", "appended", "transacted", "history"
PARTITIONS = {ORDERS: 6, APPENDED: 2, TRANSACTED: 3, HISTORY: 3}
SEGMENTS = {"segment.bytes": "1048576", "min.insync.replicas": "2"}
CONFIGS: dict[str, dict[str, str]] = {
    ORDERS: SEGMENTS,
    APPENDED: {**SEGMENTS, "message.timestamp.type": "LogAppendTime"},
    TRANSACTED: SEGMENTS,
    HISTORY: SEGMENTS,
}
SENT = [(topic, partition) for topic in (ORDERS, APPENDED) for partition in range(PARTITIONS[topic])]
"""Record n goes to the partition n modulo their number."""

FIRST_MS = time.time_ns() // 1_000_000 - 12 * 3_600_000
"""Of today: a broker, Kafka's or ours, forgets a producer whose records are older than `producer.id.expiration.ms`, one day, and
then takes for new what that producer sends again.
"""


def place_of(number: int) -> tuple[str, int]:
    return SENT[number % len(SENT)]


def time_of(number: int) -> int:
    """Return a record's timestamp in ms: later ones are later, by and large."""
    return FIRST_MS + number * 7 + number * 2654435761 % 100_003


def value_of(number: int) -> bytes:
    return b"%d " % number + b"x" * (number * 31 % 90)


def number_of(value: bytes) -> int:
    return int(value.split(b" ", 1)[0])
