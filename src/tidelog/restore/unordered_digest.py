"""A digest of records that does not depend on their order, for topics whose number of partitions was changed by a restore.

Each record is hashed (murmur2, four times with different prefixes), and the hashes are added. The sums have 124 bits. If a
record is missing, duplicated or different, the sums almost certainly differ.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.copying.spreading import Spread
from tidelog.ingest.arrow_columns import binary_layout, encoded_headers
from tidelog.records.kernel import BinaryColumn, murmur2_partitions
from tidelog.restore.digest import Digest
from tidelog.sources.split import Split

_COLUMNS = ("timestamp", "key", "value", "headers")
_SEEDS = (b"", b"a second time", b"once more", b"the last time")
_RANGE = 2**31 - 1


@dataclass
class UnorderedDigest:
    """Sums over records. The sums of two sets of records can be added."""

    records: int = 0
    hashes: list[int] = field(default_factory=lambda: [0] * len(_SEEDS))
    places: Counter[int] = field(default_factory=Counter)
    """How many records belong in each partition, if requested. Records without a key are not counted, because they may be in any
    partition."""

    @property
    def sums(self) -> tuple[int, ...]:
        """The sums. They are equal for equal sets of records."""
        return self.records, *self.hashes

    def add(self, other: UnorderedDigest) -> None:
        """Add the records of another digest."""
        self.records += other.records
        self.hashes = [mine + its for mine, its in zip(self.hashes, other.hashes, strict=True)]

    def digest(self) -> Digest:
        """Return the digest for reports."""
        return Digest(self.records, hashlib.sha256(repr(self.sums).encode()).hexdigest())


def unordered_digest_of(splits: Iterable[Split], spread: Spread | None = None) -> UnorderedDigest:
    """Read splits, and return the digest of their records. With `spread`, also count the records that belong in each partition.
    Raises the errors of `Split.read`.
    """
    found = UnorderedDigest()
    for split in splits:
        for batch in split.read(_COLUMNS):
            found.records += batch.num_rows
            key, value = (_binary(batch.column(name)) for name in ("key", "value"))
            parts = [
                _text(batch.column("timestamp").cast(pa.int64())),
                _length(key),
                _filled(key),
                _length(value),
                _filled(value),
            ]
            parts.append(_headers(batch.column("headers")))
            for slot, seed in enumerate(_SEEDS):
                joined = pc.binary_join_element_wise(pa.scalar(seed, pa.binary()), *parts, pa.scalar(b"|", pa.binary()))
                hashes = murmur2_partitions(BinaryColumn(*binary_layout(joined)), _RANGE)
                found.hashes[slot] += sum(hashes)
            if spread is not None:
                places = spread.places(BinaryColumn(*binary_layout(key)), batch.num_rows)
                for one in pc.value_counts(places.drop_null()).to_pylist():
                    found.places[one["values"]] += one["counts"]
    return found


def _binary(column: pa.Array) -> pa.Array:
    return column.cast(pa.binary())


def _text(numbers: pa.Array) -> pa.Array:
    return pc.fill_null(numbers.cast(pa.string()), "-").cast(pa.binary())


def _length(column: pa.Array) -> pa.Array:
    return _text(pc.binary_length(column))


def _filled(column: pa.Array) -> pa.Array:
    return pc.fill_null(column, b"")


def _headers(column: Any) -> pa.Array:
    """Return each row's headers as bytes."""
    first, items = column.offsets[0].as_py(), column.flatten()
    names, values = items.field(0), items.field(1)
    return encoded_headers(_binary(names), _binary(values), pc.subtract(column.offsets, pa.scalar(first, pa.int32())))
