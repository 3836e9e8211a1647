"""Counts of records in intervals of equal length."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


class Grid:
    """`buckets` intervals of `step_ms`, the first at `start_ms`. Records at or after `end_ms` are not counted."""

    def __init__(self, start_ms: int, end_ms: int, step_ms: int, buckets: int) -> None:
        self.start_ms = start_ms
        self.end_ms = end_ms
        self.step_ms = step_ms
        self.buckets = buckets
        self.why: set[str] = set()
        """Why the counts are inexact; empty if they are exact."""
        self._counts = [0.0] * buckets

    @classmethod
    def over(cls, start_ms: int, end_ms: int, buckets: int) -> Grid:
        """Return a grid of at most `buckets` intervals."""
        step = max(1, -(-(end_ms - start_ms) // buckets))
        return cls(start_ms, end_ms, step, max(1, -(-(end_ms - start_ms) // step)))

    def bucket(self, time_ms: int) -> int:
        """Return the index of the interval that a time in the range falls into."""
        return (time_ms - self.start_ms) // self.step_ms

    def add(self, bucket: int, count: int) -> None:
        """Add to the count of an interval."""
        self._counts[bucket] += count

    def spread(self, first_ms: int, last_ms: int, count: float) -> None:
        """Spread records evenly over a span of time, both ends included. The part outside the range is not counted."""
        each = count / (last_ms - first_ms + 1)
        first, last = max(first_ms, self.start_ms), min(last_ms, self.end_ms - 1)
        if first > last:
            return
        for bucket in range(self.bucket(first), self.bucket(last) + 1):
            low = max(first, self.start_ms + bucket * self.step_ms)
            high = min(last, self.start_ms + (bucket + 1) * self.step_ms - 1)
            self._counts[bucket] += each * (high - low + 1)

    def add_times(self, times: pa.Array) -> None:
        """Count the timestamps that are within the range."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from tidelog.web.arrow_numbers import int64

        numbers, start = times.cast(pa.int64()), int64(self.start_ms)
        numbers = numbers.filter(pc.and_(pc.greater_equal(numbers, start), pc.less(numbers, int64(self.end_ms))))
        for entry in pc.divide(pc.subtract(numbers, start), int64(self.step_ms)).value_counts().to_pylist():
            self._counts[entry["values"]] += entry["counts"]

    def whole(self) -> list[int]:
        """Return the counts as whole numbers with the same sum: rounding errors are carried to the next interval."""
        found, rest = [], 0.0
        for count in self._counts:
            number = int(count + rest + 1e-6)
            rest += count - number
            found.append(number)
        if found and rest >= 0.5:
            found[-1] += round(rest)
        return found
