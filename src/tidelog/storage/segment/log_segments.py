"""The segments of one log, by base offset (spec §5).

Invariant: ascending, one segment per base offset. The last segment is the active one. Look-ups use bisection. Inserting a segment
is O(n), which is acceptable because a log has thousands of segments at most.

Each `partition_log` has a `LogSegments`; `loader`, retention and the cleaner use its look-ups. Not thread-safe.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tidelog.errors import InvalidArgumentError, NotFoundError
from tidelog.storage.segment.log_segment import LogSegment


class LogSegments:
    """A sorted map from base offset to segment."""

    def __init__(self, segments: Iterable[LogSegment] = (), *, directory: Path | None = None) -> None:
        self.directory = directory
        self._bases: list[int] = []
        self._segments: dict[int, LogSegment] = {}
        for segment in segments:
            self.add(segment)

    def __len__(self) -> int:
        return len(self._bases)

    def __bool__(self) -> bool:
        return bool(self._bases)

    def __iter__(self) -> Iterator[LogSegment]:
        """Return an iterator over a snapshot of the segments, in ascending order: the caller may add and remove segments
        meanwhile.
        """
        return iter([self._segments[base] for base in self._bases])

    def __contains__(self, base_offset: int) -> bool:
        return base_offset in self._segments

    # --- changes

    def add(self, segment: LogSegment) -> LogSegment | None:
        """Add a segment. Return the previous segment with this base offset, or None."""
        base = segment.base_offset
        previous = self._segments.get(base)
        if previous is None:
            if not self._bases or base > self._bases[-1]:
                self._bases.append(base)
            else:
                self._bases.insert(bisect_left(self._bases, base), base)
        self._segments[base] = segment
        return previous

    def remove(self, base_offset: int) -> LogSegment | None:
        """Remove a segment, and return it; None if there is none. Its files are kept."""
        segment = self._segments.pop(base_offset, None)
        if segment is not None:
            del self._bases[bisect_left(self._bases, base_offset)]
        return segment

    def clear(self) -> None:
        """Remove all segments. Their files are kept."""
        self._bases.clear()
        self._segments.clear()

    # --- look-ups

    @property
    def base_offsets(self) -> list[int]:
        """The base offsets, ascending."""
        return list(self._bases)

    def get(self, base_offset: int) -> LogSegment | None:
        """Return the segment with exactly this base offset, or None."""
        return self._segments.get(base_offset)

    def floor(self, offset: int) -> LogSegment | None:
        """Return the segment with the largest base offset at or below `offset`, which is where the offset would be; None if there
        is none.
        """
        return self._at(bisect_right(self._bases, offset) - 1)

    def lower(self, offset: int) -> LogSegment | None:
        """Return the segment with the largest base offset below `offset`, or None."""
        return self._at(bisect_left(self._bases, offset) - 1)

    def higher(self, offset: int) -> LogSegment | None:
        """Return the segment with the smallest base offset above `offset`, or None."""
        return self._at(bisect_right(self._bases, offset))

    def values(self, from_offset: int | None = None, to_offset: int | None = None) -> list[LogSegment]:
        """Return the segments from the one that contains `from_offset` (its floor, if any) to the last one that begins below
        `to_offset`.

        Raises InvalidArgumentError if `to_offset` is below `from_offset`.
        """
        first, end = 0, len(self._bases)
        if to_offset is not None:
            if from_offset is not None and to_offset < from_offset:
                raise InvalidArgumentError(
                    "the end of a range of segments is below its start", found=f"{from_offset} to {to_offset}"
                )
            if from_offset == to_offset:
                return []
            end = bisect_left(self._bases, to_offset)
        if from_offset is not None:
            first = max(0, bisect_right(self._bases, from_offset) - 1)
        return self._slice(first, end)

    def non_active_from(self, offset: int) -> list[LogSegment]:
        """Return all segments from the one that contains `offset` (its floor), except the active one.

        Raises NotFoundError if there are no segments.
        """
        active = self.active.base_offset
        return [] if offset > active else self.values(offset, active)

    def filter(self, predicate: Callable[[LogSegment], bool]) -> list[LogSegment]:
        """Return the segments for which `predicate` is true."""
        return [segment for segment in self if predicate(segment)]

    @property
    def first(self) -> LogSegment | None:
        """The segment with the smallest base offset."""
        return self._at(0)

    @property
    def last(self) -> LogSegment | None:
        """The segment with the largest base offset."""
        return self._at(len(self._bases) - 1)

    @property
    def active(self) -> LogSegment:
        """The last segment, to which records are appended. Raises NotFoundError if there are no segments."""
        if not self._bases:
            raise NotFoundError("the log has no segments", path=self.directory)
        return self._segments[self._bases[-1]]

    @property
    def size_bytes(self) -> int:
        """Bytes of all `.log` files."""
        return sum(segment.size_bytes for segment in self._segments.values())

    # --- all of them at once

    def flush(self) -> None:
        """Wait until every segment is on disk. Raises StorageError."""
        for segment in self:
            segment.flush()

    def close(self) -> None:
        """Close every segment. Raises StorageError, after all were tried."""
        with contextlib.ExitStack() as stack:
            for segment in self:
                stack.callback(segment.close)

    def close_handlers(self) -> None:
        """Close all descriptors without changing the files (when their disk has failed)."""
        for segment in self:
            segment.close_handlers()

    def close_idle(self) -> None:
        """Close the descriptors of inactive segments until they are needed. Raises StorageError."""
        for segment in self._slice(0, len(self._bases) - 1):
            segment.close_idle()

    def give_descriptors_back(self) -> int:
        """Close the files that can be reopened. Return the number of closed descriptors. Never raises."""
        return sum(segment.give_descriptors_back() for segment in self._segments.values())

    def update_parent_dir(self, directory: Path) -> None:
        """Update the paths after the folder has been renamed."""
        self.directory = directory
        for segment in self:
            segment.update_parent_dir(directory)

    # --- inside

    def _at(self, index: int) -> LogSegment | None:
        return self._segments[self._bases[index]] if 0 <= index < len(self._bases) else None

    def _slice(self, first: int, end: int) -> list[LogSegment]:
        return [self._segments[base] for base in self._bases[first:end]]
