"""The folder that the page shows in tests and in the pictures of the docs: orders with late records, hostile values, a group."""

from __future__ import annotations

import json
import random
from pathlib import Path

import tidelog
from tidelog.testing import ManualClock

T = 1_795_046_400_000
"""2026-11-19 00:00 UTC."""

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS

ORDERS = 4_000
PARTITIONS = 3
LATE_EACH = 8
"""One order in so many is written up to forty minutes after its time."""

BIDI = "\u202egnirts\u202c \u2067rtl\u2069"
SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)><svg onload=alert(3)>"
TEMPLATE = "${alert(4)} {{constructor.constructor('alert(5)')()}} javascript:alert(6) ]]> --> </title></style></textarea>"

HOSTILE: dict[str, bytes] = {
    "script": SCRIPT.encode(),
    "template": TEMPLATE.encode(),
    "json": json.dumps({SCRIPT: [SCRIPT, {"__proto__": {"polluted": True}, "constructor": SCRIPT}]}).encode(),
    "controls": bytes(range(32)) + b"\x7f\xc2\x80\xc2\x9f" + b"\x1b[31mred\x1b]0;title\x07",
    "not UTF-8": b"\xff\xfe\xfd" + bytes(range(128, 256)),
    "bidi": BIDI.encode(),
    "combining": ("Z" + "\u0351\u036b\u0343" * 400).encode(),
    "wide": ("W" * 100_000).encode(),
    "lines": b"\n" * 10_000 + b"end",
    "deep": b"[" * 5_000 + b"]" * 5_000,
    "number": b'{"id": 9007199254740993, "tiny": 1e-400}',
    "invisible": "\u200b\u2060\ufeff\u00ad\U000e0041".encode(),
    "surrogates": b'"\\ud800 \\udfff"',
    "empty": b"",
}
"""Values that a page must neither run nor be bent by."""


def value_of(order: int, draw: random.Random) -> bytes:
    """Return an order as JSON."""
    lines = [{"sku": f"A-{draw.randrange(900):03}", "quantity": draw.randrange(1, 4)} for _ in range(draw.randrange(1, 3))]
    return json.dumps(
        {"order": order, "customer": f"c-{draw.randrange(400):03}", "total": draw.randrange(300, 9000) / 100, "lines": lines}
    ).encode()


def write_orders(broker: tidelog.Broker) -> None:
    """Write the topic `orders`: a day of them, in segments of some thousand records, some late."""
    draw = random.Random(29)
    broker.create_topic("orders", PARTITIONS, **{"segment.bytes": 40_000, "retention.ms": 7 * 24 * HOUR_MS})
    # More at noon and in the evening.
    hours = sorted(
        draw.choices(range(24), [1, 1, 1, 1, 1, 2, 4, 6, 7, 8, 9, 12, 14, 11, 8, 8, 9, 12, 15, 13, 9, 6, 4, 2], k=ORDERS)
    )
    times = sorted(T + hour * HOUR_MS + draw.randrange(HOUR_MS) for hour in hours)
    written = sorted((time + (draw.randrange(40 * MINUTE_MS) if draw.randrange(LATE_EACH) == 0 else 0), time) for time in times)
    for order, (_, time) in enumerate(written):
        headers = [("till", b"%d" % draw.randrange(12))] if order % 3 == 0 else []
        broker.produce(
            "orders",
            value_of(order, draw),
            key=f"till-{order % 12}",
            partition=order % PARTITIONS,
            timestamp_ms=time,
            headers=headers,
        )


def write_hostile(broker: tidelog.Broker) -> None:
    """Write the topic `hostile`: each value of `HOSTILE` as value, key and header."""
    broker.create_topic("hostile", 1, **{"retention.ms": -1})
    for number, value in enumerate(HOSTILE.values()):
        name = value[:2000].decode("utf-8", "replace") or "empty"
        broker.produce(
            "hostile",
            value,
            key=value[:3000].decode("utf-8", "replace"),
            timestamp_ms=T + number,
            headers=[(name, value[:3000]), ("none", None)],
        )
    broker.produce("hostile", None, timestamp_ms=T + len(HOSTILE))


def write_strays(broker: tidelog.Broker) -> None:
    """Write the topic `strays`: 50 records of an hour, one of 1970, one ten years ahead."""
    broker.create_topic("strays", 1)
    for time in (0, *(T + number * MINUTE_MS for number in range(50)), T + 3_653 * 24 * HOUR_MS, T + HOUR_MS):
        broker.produce("strays", "x", timestamp_ms=time)


def commit(address: str) -> None:
    """Let a group be behind: it has read half of each partition of `orders`."""
    from confluent_kafka import Consumer, TopicPartition

    half = ORDERS // PARTITIONS // 2
    consumer = Consumer({"bootstrap.servers": address, "group.id": "billing", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("orders", number, half) for number in range(PARTITIONS)], asynchronous=False)
    consumer.close()


def write_folder(folder: Path) -> None:
    """Write all topics, and the group."""
    clock = ManualClock(T + 24 * HOUR_MS)
    with tidelog.Broker(folder, clock=clock, **{"log.retention.ms": -1, "message.max.bytes": 1 << 20}) as broker:
        write_orders(broker)
        write_hostile(broker)
        write_strays(broker)
        for name in ("payments", "clicks", "sensor.readings-v2", *(f"service-{number:02}.events" for number in range(12))):
            broker.create_topic(name, 2)
            broker.produce(name, ["first", "second"], timestamp_ms=T)
        commit(broker.bootstrap_servers)
