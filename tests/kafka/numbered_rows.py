"""Rows that say where they are, `partition:row`, a second between two of them: members of a group have read each just once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tests.kafka.clients import NewRow, produce
from tests.kafka.group_members import Member, Place, wait_until_read

FIRST_MS = 1_750_000_000_000


class Peer(Protocol):
    """A broker, by its address."""

    @property
    def bootstrap(self) -> str: ...


def fill(peer: Peer, topic: str, rows: int, start: int = 0, *, partitions: int) -> None:
    """So many rows in each partition, numbered from `start`."""
    for partition in range(partitions):
        new = [NewRow(None, b"%d:%d" % (partition, row), FIRST_MS + 1000 * row) for row in range(start, start + rows)]
        produce(peer.bootstrap, topic, new, partition)


def places(topic: str, *, partitions: int) -> list[Place]:
    return [Place(topic, partition) for partition in range(partitions)]


def check_once(members: Sequence[Member], topic: str, rows: int, *, partitions: int) -> None:
    """Each row of each partition was read once, by whoever had the partition then."""
    wait_until_read(members, rows * partitions)
    read = sorted((row.place, row.offset, row.value) for member in members for row in member.rows)
    wanted = places(topic, partitions=partitions)
    assert read == [(place, row, b"%d:%d" % (place.partition, row)) for place in wanted for row in range(rows)]
