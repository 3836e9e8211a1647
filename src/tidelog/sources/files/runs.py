"""The facts about batches that a folder split stores: positions, headers, and aborted ranges."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.records.batch import BatchHeader


@dataclass(frozen=True, slots=True)
class BatchMark:
    """A batch as the plan found it. A field is None if the plan took the batch from a summary that lacks this fact, and did not
    read the batch.
    """

    position: int
    size: int | None
    base_offset: int | None
    crc: int | None
    next_offset: int | None = None

    @classmethod
    def of(cls, header: BatchHeader) -> BatchMark:
        return cls(header.position, header.size, header.base_offset, header.crc)

    def fits(self, header: BatchHeader) -> bool:
        """Return whether a batch equals the one that the plan found, in every field that is not None."""
        return (
            self.position == header.position
            and self.size in (None, header.size)
            and self.base_offset in (None, header.base_offset)
            and self.crc in (None, header.crc)
            and self.next_offset in (None, header.next_offset)
        )


@dataclass(frozen=True, slots=True)
class Run:
    """Adjacent batches, from the first to the last, both included."""

    first: BatchMark
    """The first batch, whose base offset is known."""
    last: BatchMark
    """The last batch, whose size is known."""

    @property
    def start_position(self) -> int:
        return self.first.position

    @property
    def end_position(self) -> int:
        assert self.last.size is not None
        return self.last.position + self.last.size

    @property
    def first_offset(self) -> int:
        assert self.first.base_offset is not None
        return self.first.base_offset

    @property
    def size_bytes(self) -> int:
        return self.end_position - self.start_position


@dataclass(frozen=True, slots=True)
class AbortedRange:
    """Batches of this producer with base offsets in `first_offset..last_offset` (inclusive) belong to an aborted transaction."""

    producer_id: int
    first_offset: int
    last_offset: int
