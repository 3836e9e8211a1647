"""The times, partitions and offsets that a filter can accept, proven by Arrow.

DuckDB passes the filters of a table scan as one Arrow expression. Its optimizer has already folded constants, moved predicates
through joins, subqueries and views, and rewritten functions such as `date_trunc` into ranges. This module does not parse that
expression. It asks Arrow whether the expression can be true, given a fact about the record ("its timestamp is at most T").
Arrow does the same to skip files of a partitioned data set. Arrow answers "no" only if it can simplify the expression, given
that fact, to false or null. Each bound is found by bisection, and Arrow has proven that no record beyond the bound passes.

Invariant: only records that provably do not pass are left out. If Arrow cannot simplify a filter, nothing is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs

from tidelog.sources.bounds import TimeRange

MICROSECONDS = pa.timestamp("us", tz="UTC")
"""The Arrow type of DuckDB's TIMESTAMP WITH TIME ZONE. Its smallest and largest values stand for -infinity and infinity."""

LARGEST = 2**63 - 1

MOST_PARTITIONS = 16
"""Up to this many partitions have offset bounds of their own. If there are more, all share the same bounds."""

_FORMAT = ds.IpcFileFormat()
_FILES = pyarrow.fs.LocalFileSystem()


@dataclass(frozen=True, slots=True)
class Bounds:
    """The part of a topic that a filter can accept, and that must be read."""

    time: TimeRange
    """Unbounded if records without a timestamp can pass."""
    partitions: tuple[int, ...]
    offsets: dict[int, tuple[int, int]] | None
    """`[first, end)` by partition; None if offsets are not limited."""
    is_exact: bool
    """Whether every record within the bounds passes, so that the filter need not be evaluated."""


class Filter:
    """An Arrow expression over records with a schema. A column `timestamp` is in microseconds. Expression None accepts all
    records.
    """

    def __init__(self, expression: pc.Expression | None, schema: pa.Schema) -> None:
        self.expression = expression
        self.schema = schema
        self._text = "" if expression is None else str(expression)
        # A bound is a constant or its neighbor, most of the time.
        near = {one + more for one in _constants(expression) if one is not None for more in (-1, 0, 1)}
        self._constants = sorted({-LARGEST, 0, LARGEST} | near)

    def mentions(self, column: str) -> bool:
        """Whether the expression may use a column: False only if the column's name is not in the expression's text."""
        return column in self._text

    def can_pass(self, known: pc.Expression) -> bool:
        """Whether a record for which `known` is true can pass. False is proof that no such record can."""
        return self.expression is None or self._is_possible(self.expression, known)

    def bounds(self, topic: str, partitions: Iterable[int]) -> Bounds | None:
        """Return the part of a topic that must be read; None if no record of the topic can pass."""
        if self.expression is None:
            return Bounds(TimeRange(), tuple(partitions), None, is_exact=True)
        of_topic = pc.field("topic") == topic
        wanted = [number for number in partitions if self.can_pass(of_topic & (pc.field("partition") == number))]
        known = of_topic & pc.field("partition").is_valid()
        hull = self._hull("timestamp", _time, known, -LARGEST, LARGEST)
        without_time = self.can_pass(known & pc.field("timestamp").is_null())
        if not wanted or (hull is None and not without_time):
            return None
        time = TimeRange()
        if hull is not None and not without_time:
            time = _range(*hull)
            known &= _between("timestamp", *map(_time, hull))
            # A bounded scan leaves out records without a timestamp.
            is_known = time.is_bounded and (time.start_ms is not None or hull[0] == -LARGEST)
            known = known & pc.field("timestamp").is_valid() if is_known else of_topic
        offsets = self._offsets(known, wanted)
        if offsets is not None:
            wanted = [number for number in wanted if number in offsets]
        return Bounds(time, tuple(wanted), offsets, is_exact=self._always_passes(known, wanted, offsets)) if wanted else None

    def _always_passes(self, known: pc.Expression, partitions: list[int], offsets: dict[int, tuple[int, int]] | None) -> bool:
        """Whether the expression is provably true for every record in the partitions and offsets."""
        assert self.expression is not None
        fails = ~self.expression | self.expression.is_null()
        for number in partitions:
            also = known & (pc.field("partition") == number)
            if offsets is not None:
                first, end = offsets[number]
                also &= _between("offset", first, end - 1) & pc.field("offset").is_valid()
            if self._is_possible(fails, also):
                return False
        return True

    def _offsets(self, known: pc.Expression, partitions: list[int]) -> dict[int, tuple[int, int]] | None:
        if not self.mentions("offset"):
            return None
        groups = [[number] for number in partitions] if len(partitions) <= MOST_PARTITIONS else [partitions]
        found: dict[int, tuple[int, int]] = {}
        for numbers in groups:
            also = known & (pc.field("partition") == numbers[0]) if len(numbers) == 1 else known
            hull = self._hull("offset", lambda value: pa.scalar(value, pa.int64()), also, 0, LARGEST)
            if hull is not None:
                found.update({number: (hull[0], min(hull[1] + 1, LARGEST)) for number in numbers})
        is_bound = len(found) < len(partitions) or any(one != (0, LARGEST) for one in found.values())
        return found if is_bound else None

    def _hull(
        self, column: str, scalar: Callable[[int], pa.Scalar], known: pc.Expression, lowest: int, highest: int
    ) -> tuple[int, int] | None:
        """Return the smallest and the largest value with which a record can pass; None if no record can."""
        field = pc.field(column)
        known &= field.is_valid() & (field >= scalar(lowest))
        if not self.can_pass(known):
            return None
        low, high = lowest, highest
        while low < high:
            middle = self._middle(low, high - 1)
            if self.can_pass(known & (field <= scalar(middle))):
                high = middle
            else:
                low = middle + 1
        first, high = low, highest
        while low < high:
            middle = self._middle(low + 1, high)
            if self.can_pass(known & (field >= scalar(middle))):
                low = middle
            else:
                high = middle - 1
        return first, low

    def _middle(self, low: int, high: int) -> int:
        """Return where to bisect `[low, high]`: at a constant of the expression if one lies in the range, because most bounds are
        constants.
        """
        within = [one for one in self._constants if low <= one <= high]
        return within[len(within) // 2] if within else (low + high) // 2

    def _is_possible(self, expression: pc.Expression, known: pc.Expression) -> bool:
        # A file that stands for such records. Only its partition expression is used.
        try:
            piece = _FORMAT.make_fragment("", _FILES, partition_expression=known)
            pieces: Any = ds.FileSystemDataset([piece], self.schema, _FORMAT, _FILES)
            return next(iter(pieces.get_fragments(expression)), None) is not None
        except (pa.ArrowException, TypeError):
            return True  # Arrow cannot simplify it, so nothing is proven.


def _constants(expression: pc.Expression | None) -> list[int]:
    """Return the numbers and times in an expression, as far as its pickled form shows them. The values only speed up the
    search.
    """
    if expression is None:
        return []
    try:
        pickled: Any = expression.__reduce__()
        values = pa.ipc.open_file(pickled[1][0]).get_batch(0).columns
        kinds = (pa.types.is_timestamp, pa.types.is_integer)
        return [one.cast(pa.int64())[0].as_py() for one in values if any(is_kind(one.type) for is_kind in kinds)]
    except (AttributeError, LookupError, TypeError, ValueError, pa.ArrowException):
        return []


def _between(column: str, first: object, last: object) -> pc.Expression:
    field = pc.field(column)
    return field == first if first == last else (field >= first) & (field <= last)


def _range(first: int, last: int) -> TimeRange:
    """Convert a range of microseconds, both ends included, to a time range in milliseconds. A time before 1970 sets no bound."""
    if last < 0:
        return TimeRange()
    return TimeRange(None if first < 0 else -(-first // 1000), None if last == LARGEST else last // 1000 + 1)


def _time(microseconds: int) -> pa.Scalar:
    return pa.scalar(microseconds, MICROSECONDS)
