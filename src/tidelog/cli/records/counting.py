"""`--count`: counts records, in total or per time interval.

Intervals begin at multiples of their length, counted from 1970-01-01 00:00 in the time zone. Empty intervals between others are
shown, unless there are more than `MAX_INTERVALS`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tidelog.times import format_time

if TYPE_CHECKING:
    import pyarrow as pa

MAX_INTERVALS = 10_000

COLUMNS = ("topic", "timestamp")

Counts = Counter[tuple[str, int | None]]
"""The number of records by topic and local start of the interval (ms). The start is None for records without a timestamp, or if
there are no intervals.
"""


def count_records(batches: Iterable[pa.RecordBatch], every_ms: int | None, zone: str | None) -> Counts:
    """Count records. `zone` is the time zone of the intervals, None for UTC."""
    import pyarrow as pa
    import pyarrow.compute as pc

    counts: Counts = Counter()
    for batch in batches:
        topic = batch.column("topic")[0].as_py()
        if every_ms is None:
            counts[topic, None] += batch.num_rows
            continue
        times = batch.column("timestamp")
        if zone is not None:
            times = pc.local_timestamp(times.cast(pa.timestamp("ms", tz=zone)))
        numbers = times.cast(pa.int64())
        starts = pc.multiply(pc.divide(numbers, every_ms), every_ms)
        for entry in starts.value_counts().to_pylist():
            counts[topic, entry["values"]] += entry["counts"]
    return counts


def count_rows(counts: Counts, topics: Iterable[str], every_ms: int | None) -> Iterator[tuple[str, int | None, int]]:
    """Yield (topic, start of the interval, number of records), sorted by topic and time."""
    for topic in topics:
        own = {start: count for (name, start), count in counts.items() if name == topic}
        if every_ms is None:
            yield topic, None, own.get(None, 0)
            continue
        if None in own:
            yield topic, None, own[None]
        starts = sorted(start for start in own if start is not None)
        if starts and (starts[-1] - starts[0]) // every_ms < MAX_INTERVALS:
            starts = list(range(starts[0], starts[-1] + 1, every_ms))
        for start in starts:
            yield topic, start, own.get(start, 0)


def show_start(start: int | None, zone: str | None) -> str | None:
    """Return the local start of an interval as text, with its zone."""
    if start is None:
        return None
    return format_time(start) if zone is None else f"{format_time(start).removesuffix('Z')} {zone}"
