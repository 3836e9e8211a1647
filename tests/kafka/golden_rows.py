"""The records that Kafka's brokers served from the folders in `tests/golden`, as a client's rows."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from tests.kafka.clients import Row

GOLDEN = Path(__file__).parent.parent / "golden"
RELEASES = ("2.4.1", "3.9.1")


def log_folder(release: str) -> Path:
    return GOLDEN / f"kafka-{release}" / "log"


def golden(release: str) -> dict[str, list[dict[str, Any]]]:
    """Topic → partitions, as in `tests/golden/README.md`."""
    topics: dict[str, list[dict[str, Any]]] = json.loads((log_folder(release).parent / "expected.json").read_text())["topics"]
    return topics


def rows(partition: dict[str, Any], *, committed: bool = False) -> list[Row]:
    """The records of a partition; those that a read_committed consumer got."""
    seen = partition["read_committed_offsets"] if committed else None
    return [
        Row(offset, timestamp, kind, _bytes(key), _bytes(value), tuple((name, _bytes(text)) for name, text in headers))
        for offset, timestamp, kind, key, value, headers in partition["records"]
        if seen is None or offset in seen
    ]


def has_transactions(partitions: list[dict[str, Any]]) -> bool:
    return any(partition["read_committed_offsets"] is not None for partition in partitions)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
