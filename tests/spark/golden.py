"""The logs that Apache Kafka wrote, and what its broker said is in them, in the shape that the source delivers."""

from __future__ import annotations

import base64
import functools
import json
from pathlib import Path
from typing import Any, NamedTuple

GOLDEN = Path(__file__).parent.parent / "golden"
RELEASES = ("kafka-3.9.1", "kafka-2.4.1")
BASE_MS = 1_600_604_800_000
"""The time around which the golden records with CreateTime were produced."""


class Row(NamedTuple):
    """A record as the source delivers it; `timestamp` in epoch ms. `headers` is None where the record has none."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None


def log_dir(release: str = "kafka-3.9.1") -> str:
    return str(GOLDEN / release / "log")


@functools.cache
def expected(release: str = "kafka-3.9.1") -> dict[str, list[dict[str, Any]]]:
    topics: dict[str, list[dict[str, Any]]] = json.loads((GOLDEN / release / "expected.json").read_text())["topics"]
    return topics


def rows(topic: str, release: str = "kafka-3.9.1", *, committed: bool = False) -> list[Row]:
    """Return the records of a topic that a consumer saw, in order of partition and offset."""
    found = []
    for partition in expected(release)[topic]:
        seen = partition["read_committed_offsets"] if committed else None
        for offset, timestamp, kind, key, value, headers in partition["records"]:
            if seen is None or offset in seen:
                found.append(
                    Row(
                        topic,
                        partition["partition"],
                        offset,
                        None if timestamp == -1 else timestamp,
                        kind - 1,  # librdkafka counts from "none", Kafka from CreateTime
                        _bytes(key),
                        _bytes(value),
                        tuple((name, _bytes(text)) for name, text in headers) or None,
                    )
                )
    return sorted(found, key=lambda row: (row.topic, row.partition, row.offset))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
