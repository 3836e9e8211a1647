"""`--sort time`: sorts records by timestamp, topic, partition and offset; records without a timestamp come first.

Up to `RUN_BYTES` are sorted in memory. Larger inputs become sorted runs in temporary files, which are merged block by block:

| | at most |
|---|---|
| memory | twice `RUN_BYTES`, or the largest batch of the input; while merging, a block of each run and a sorted copy |
| files | `FAN_IN - 1` for each power of `FAN_IN` in the number of runs, plus 2: 47 for 4,095 runs (about 32 GiB) |
| disk | twice the size of the records. The files have no names, so the system frees them even if the process is killed |

A block holds up to `BLOCK_BYTES`, or one larger record. A run's next block is read only when the block's first record is due, so
large records are read one at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from tempfile import TemporaryFile, gettempdir
from typing import TYPE_CHECKING, Any, TypeAlias

from tidelog.errors import StorageError

if TYPE_CHECKING:
    import pyarrow as pa

RUN_BYTES = 8 << 20
BLOCK_BYTES = 128 << 10

FAN_IN = 16
"""The number of runs that are merged into a longer one."""

KEYS = ("timestamp", "topic", "partition", "offset")

Key: TypeAlias = tuple[bool, int, str, int, int]
"""A record's sort key: whether the record has a timestamp, then the fields in `KEYS`."""


def sorted_by_time(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield all records sorted by time. Raises StorageError if a temporary file cannot be written."""
    levels: list[list[_Run]] = []
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    with ExitStack() as files:
        for batch in batches:
            if held and held_bytes + batch.nbytes > RUN_BYTES:
                _add(levels, _Run(_blocks(held), files))
                held, held_bytes = [], 0
            held.append(batch)
            held_bytes += batch.nbytes
            del batch  # The next batch may be just as large, so free this one first.
        if not levels:
            yield from _blocks(held)
            return
        runs = [run for level in levels for run in level]
        if held:
            runs.append(_Run(_blocks(held), files))
            held = []
        yield from _merged(runs)


def by_time(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the records sorted by time. The sort takes place in memory."""
    return list(_blocks([*batches]))


def _blocks(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the records in order, in blocks. The list is emptied, because the records are copied into one batch."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not batches:
        return
    records = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    batches.clear()
    try:
        order = pc.sort_indices(records, sort_keys=[(name, "ascending", "at_start") for name in KEYS])
    except (TypeError, ValueError):  # Before pyarrow 23 all sort keys share one null placement.
        order = pc.sort_indices(records, sort_keys=[(name, "ascending") for name in KEYS], null_placement="at_start")
    rows = max(1, len(order) * BLOCK_BYTES // max(1, records.nbytes))
    for start in range(0, len(order), rows):
        yield from _taken(records, order.slice(start, rows))


def _taken(records: pa.RecordBatch, order: pa.Array) -> Iterator[pa.RecordBatch]:
    if len(order) == 1:  # Not copied, because it may be large.
        yield records.slice(order[0].as_py(), 1)
        return
    block = records.take(order)
    if block.nbytes <= 2 * BLOCK_BYTES:
        yield block
        return
    del block
    half = len(order) // 2
    yield from _taken(records, order.slice(0, half))
    yield from _taken(records, order.slice(half))


class _Run:
    """Sorted records in a temporary file, which is read from start to end."""

    def __init__(self, blocks: Iterable[pa.RecordBatch], files: ExitStack) -> None:
        import pyarrow as pa

        self.files = files
        self._file: Any = files.enter_context(TemporaryFile(prefix="tidelog-sort-"))  # noqa: SIM115
        self._keys: list[tuple[Key, Key]] = []
        writer = None
        try:
            for block in blocks:
                writer = writer or pa.ipc.new_file(self._file, block.schema)
                writer.write_batch(block)
                self._keys.append((_key(block, 0), _key(block, block.num_rows - 1)))
            assert writer is not None
            writer.close()
            self._file.flush()
        except OSError as error:
            raise StorageError(f"cannot sort by time in a temporary file: {error.strerror or error}", path=gettempdir()) from None
        self._reader = pa.ipc.open_file(self._file)
        self._number = self._row = 0
        self._block: pa.RecordBatch | None = None
        self.first, self.last = self._keys[0]

    @property
    def is_single(self) -> bool:
        """Whether the current block has one record, which may be large."""
        return self.first == self.last

    def up_to(self, bound: Key) -> pa.RecordBatch:
        """Return the current block's records up to `bound`, at least one, and advance past them."""
        if self._block is None:
            self._block = self._reader.get_batch(self._number)
        block, start = self._block, self._row
        self._row = bisect_right(range(block.num_rows), bound, start, key=lambda row: _key(block, row))
        if self._row < block.num_rows:
            self.first = _key(block, self._row)
        else:
            self._block, self._row = None, 0
            self._number += 1
            if self._number < len(self._keys):
                self.first, self.last = self._keys[self._number]
        return block.slice(start, (self._row or block.num_rows) - start)

    @property
    def is_over(self) -> bool:
        return self._number == len(self._keys)

    def close(self) -> None:
        self._file.close()


def _key(block: pa.RecordBatch, row: int) -> Key:
    import pyarrow as pa

    time, topic, partition, offset = (block.column(name) for name in KEYS)
    # As a number, because some timestamps are after the year 9999, the last that `datetime` supports.
    time_ms = time.slice(row, 1).view(pa.int64())[0].as_py()
    return time_ms is not None, time_ms or 0, topic[row].as_py(), partition[row].as_py(), offset[row].as_py()


def _add(levels: list[list[_Run]], run: _Run) -> None:
    """Add a run to the first level. When a level has `FAN_IN` runs, merge them into one run of the next level."""
    for level in levels:
        level.append(run)
        if len(level) < FAN_IN:
            return
        run = _Run(_merged(level), run.files)
        level.clear()
    levels.append([run])


def _merged(runs: Sequence[_Run]) -> Iterator[pa.RecordBatch]:
    """Yield the records of all runs, sorted. Each step yields the records up to the end of whichever current block ends first."""
    left = list(runs)
    while left:
        nearest = min(left, key=lambda run: run.last)
        bound = nearest.last
        parts = [run.up_to(bound) for run in left if run is not nearest and run.first <= bound]
        is_single = nearest.is_single
        if parts and not is_single:
            parts.append(nearest.up_to(bound))
        if parts:
            yield from parts if len(parts) == 1 else _blocks(parts)
            del parts
        if nearest.first <= bound and not nearest.is_over:
            yield nearest.up_to(bound)
        for run in left:
            if run.is_over:
                run.close()
        left = [run for run in left if not run.is_over]
