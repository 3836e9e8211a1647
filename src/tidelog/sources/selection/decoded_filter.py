"""Selects records by their decoded keys and values, and returns the selected records undecoded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.decoding.decodings import Decodings
from tidelog.sources.selection.decoded_records import DecodedRecords, by_topic
from tidelog.sources.selection.where import Where, with_bytes

_ROW = "_row"

_Filters: TypeAlias = Sequence[Callable[[pa.RecordBatch], pa.RecordBatch]]


class DecodedFilter:
    """Applies the filters `texts` to keys and values as they are printed, then `typed` to typed columns.

    If a key or value cannot be decoded, filters in `texts` are applied to its bytes, and filters in `typed` to null.
    """

    def __init__(self, decodings: Decodings, texts: _Filters, typed: Sequence[Where]) -> None:
        self._records = DecodedRecords(decodings)
        self._texts = texts
        self._typed = typed
        self._undecoded: Counter[str] = Counter()

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records that pass all filters."""
        if self._texts:
            batch = self._passing(batch, list(self._records.displayed([_numbered(batch)])), self._texts)
        if self._typed and batch.num_rows:
            kept = with_bytes(_numbered(batch))
            batch = self._passing(batch, [self._decoded(topic, part) for topic, part in by_topic(kept)], self._typed)
        return batch

    def notices(self) -> list[str]:
        """Return the notices of the typed filters, and a notice for each topic whose keys or values the filters treated as null
        because they could not be decoded.
        """
        numbers = {
            topic: "1 key or value" if count == 1 else f"{count:,} keys or values" for topic, count in (+self._undecoded).items()
        }
        undecoded = [
            f"{topic}: {number} cannot be decoded; {one.name} sees null instead"
            for one in self._typed
            for topic, number in numbers.items()
        ]
        return [*(text for one in self._typed for text in one.notices()), *undecoded]

    def _decoded(self, name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        topic = self._records.topic(name)
        before = topic.undecoded.total()
        decoded = topic.decode(batch)
        self._undecoded[name] += topic.undecoded.total() - before
        return decoded

    def _passing(self, batch: pa.RecordBatch, decoded: Sequence[pa.RecordBatch], filters: _Filters) -> pa.RecordBatch:
        passed = [reduce(lambda rest, keep: keep(rest), filters, one).column(_ROW) for one in decoded]
        return batch.take(pc.array_take(rows := pa.concat_arrays([pa.array([], pa.int64()), *passed]), pc.sort_indices(rows)))


def _numbered(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column(_ROW, pa.array(range(batch.num_rows), pa.int64()))
