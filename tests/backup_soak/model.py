"""The plain model of a cluster: what its logs had, from the files that Kafka wrote and from what clients were told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tidelog.records.batch import iter_headers
from tidelog.records.control import ControlType, parse_control_type
from tidelog.records.records import iter_records

Row = tuple[int, int, int, bytes | None, bytes | None]
"""Partition, offset, timestamp, key, value."""


class Entry(NamedTuple):
    """A record, or a marker, of a partition's log."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    producer: int
    """-1 outside of transactions."""
    commits: bool | None
    """None for a record."""


class Sent(NamedTuple):
    """A record that was acknowledged."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    acknowledged_ms: int


@dataclass
class Life:
    """A topic from its creation to its deletion."""

    name: str
    is_compacted: bool
    partitions: int
    created_ms: int
    """When the client knew of it."""
    deleted_ms: int | None = None
    """When the client asked for the deletion."""
    topic_id: str = ""
    sent: list[Sent] = field(default_factory=list)
    settings: list[tuple[int, int, dict[str, str]]] = field(default_factory=list)
    """Before and after each change: what is set from then on."""
    logs: dict[int, list[Entry]] = field(default_factory=dict)
    """What Kafka's files had at the end of its life."""

    def rows(self, cuts: dict[int, int]) -> list[Row]:
        """What a read_committed consumer gets of each partition before an offset; what is undecided there is left out."""
        found: list[Row] = []
        for partition, cut in cuts.items():
            ends: dict[int, list[Entry]] = {}
            for one in self.logs[partition]:
                if one.commits is not None:
                    ends.setdefault(one.producer, []).append(one)
            for one in self.logs[partition]:
                if one.commits is not None or one.offset >= cut:
                    continue
                end = next((end for end in ends.get(one.producer, ()) if end.offset > one.offset), None)
                if one.producer < 0 or (end is not None and end.offset < cut and end.commits):
                    found.append((partition, one.offset, one.timestamp, one.key, one.value))
        return sorted(found)

    def cut(self, partition: int, until_ms: int) -> int:
        """The first offset at or after a time."""
        if self.is_compacted:
            offsets = (one.offset for one in self.sent if one.partition == partition and one.timestamp >= until_ms)
        else:
            offsets = (one.offset for one in self.logs[partition] if one.timestamp >= until_ms)
        return min(offsets, default=1 << 62)

    def state(self, cuts: dict[int, int]) -> dict[tuple[int, bytes | None], Sent]:
        """The last record of each key before an offset, as a compacted topic has it."""
        return {(one.partition, one.key): one for one in sorted(self.sent) if one.offset < cuts.get(one.partition, 0)}

    def was_replaced(self, sent: Sent, before_ms: int) -> bool:
        """Whether compaction may have removed a record before a time."""
        return any(
            one.offset > sent.offset
            for one in self.sent
            if (one.partition, one.key) == (sent.partition, sent.key) and one.acknowledged_ms <= before_ms
        )


class Commit(NamedTuple):
    """A group's positions, or its deletion (None), and when the client asked for it and was told."""

    before_ms: int
    after_ms: int
    offsets: dict[tuple[str, int], int] | None


def allowed(commits: list[Commit], key: tuple[str, int], at_ms: int) -> set[int | None]:
    """Where a group may have been in a partition: what it was told last, or what was under way then."""
    found: set[int | None] = {None}
    for one in commits:
        if one.offsets is None or key in one.offsets:
            value = None if one.offsets is None else one.offsets[key]
            if one.after_ms < at_ms:
                found = {value}
            elif one.before_ms <= at_ms:
                found.add(value)
    return found


def entries(folder: Path) -> list[Entry]:
    """Read the log of a partition from Kafka's files."""
    paths = sorted(folder.glob("*.log"))
    return [one for path in paths for one in batch_entries(memoryview(path.read_bytes()), path)]


def batch_entries(data: memoryview, path: Path | str) -> Iterator[Entry]:
    """Yield what is in batches."""
    for header in iter_headers(data, 0, str(path)):
        batch = data[header.position : header.end_position]
        producer = header.producer_id if header.is_transactional else -1
        for record in iter_records(header, batch, path=path):
            commits = None
            if header.is_control:
                commits = parse_control_type(record.key, path=path) is ControlType.COMMIT
            yield Entry(record.offset, record.timestamp, record.key, record.value, producer, commits)
