"""Copies into a topic with a different number of partitions. The chosen partitioner maps each record's key to a partition.

| partitioner | is the default of | keys | without a key |
|---|---|---|---|
| murmur2 | Kafka's Java producers | murmur2 | round robin |
| crc32 | librdkafka: confluent-kafka, kcat | CRC-32; an empty key counts as no key | round robin |

Records of a source partition with the same key stay in order, because one copier writes them. Records without a key go to the
partitions in turn: those of one group of rebuilt batches to one partition, those of the next group to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from tidelog.records.kernel import BinaryColumn, crc32_partitions, murmur2_partitions

if TYPE_CHECKING:
    import pyarrow as pa  # Only a copy that spreads records needs Arrow: the import takes a tenth of a second.

Partitioner = Literal["murmur2", "crc32"]

PARTITIONERS: Final[Mapping[str, Callable[[BinaryColumn, int], object]]] = {
    "murmur2": murmur2_partitions,
    "crc32": crc32_partitions,
}


class Spread(NamedTuple):
    """A number of partitions, and the partitioner that chooses among them."""

    partitions: int
    partitioner: Partitioner = "murmur2"

    def places(self, keys: BinaryColumn, rows: int) -> pa.Array:
        """Return each row's partition (int32), null for a row without a key."""
        import pyarrow as pa
        import pyarrow.compute as pc

        chosen = PARTITIONERS[self.partitioner](keys, self.partitions)
        places = pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(chosen)], 0)
        return pc.replace_with_mask(places, pc.less(places, 0), pa.scalar(None, pa.int32()))

    def rows(self, keys: BinaryColumn, rows: int, turn: int) -> Iterator[tuple[int, pa.Int32Array]]:
        """Yield each partition that gets rows, with the numbers of those rows. `turn` selects the partition for rows
        without a key.
        """
        import pyarrow.compute as pc

        from tidelog.ingest.arrow_columns import rows_by_place

        return rows_by_place(pc.fill_null(self.places(keys, rows), turn % self.partitions))
