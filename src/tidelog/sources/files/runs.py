"""A folder split's stored facts about batches: positions, headers, and aborted ranges."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.records.batch import BatchHeader


@dataclass(frozen=True, slots=True)
class BatchMark:
    """A batch as the plan found it."""

    position: int
    size: int
    base_offset: int
    crc: int

    @classmethod
    def of(cls, header: BatchHeader) -> BatchMark:
        return cls(header.position, header.size, header.base_offset, header.crc)


@dataclass(frozen=True, slots=True)
class Run:
    """Adjacent batches, from the first to the last, both included."""

    first: BatchMark
    last: BatchMark

    @property
    def start_position(self) -> int:
        return self.first.position

    @property
    def end_position(self) -> int:
        return self.last.position + self.last.size

    @property
    def size_bytes(self) -> int:
        return self.end_position - self.start_position


@dataclass(frozen=True, slots=True)
class AbortedRange:
    """Batches of this producer with base offsets in `first_offset..last_offset` (inclusive) belong to an aborted transaction."""

    producer_id: int
    first_offset: int
    last_offset: int
