"""A digest of a partition's records, to compare a restored partition with the backup. Equal records in the same order give the
same digest, however they are batched.

Each column is hashed as a stream: the bytes of all values, their lengths (-1 for null), the timestamps.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from tidelog.sources.split import Split

if TYPE_CHECKING:
    from hashlib import _Hash

    import pyarrow as pa  # Its import takes a tenth of a second: only a restore that is read back needs it.

_COLUMNS = ("timestamp", "key", "value", "headers")


class Digest(NamedTuple):
    """The number of records, and the SHA-256 of their content."""

    records: int
    sha256: str


class DigestTask(NamedTuple):
    """Splits of one partition, in order. The digest includes offsets only if requested."""

    splits: tuple[Split, ...]
    with_offsets: bool


def digest_of(task: DigestTask) -> Digest:
    """Return the digest of the records in a partition's splits. Raises the errors of `Split.read`."""
    streams: dict[str, _Hash] = {}
    count = 0
    columns = ("offset", *_COLUMNS) if task.with_offsets else _COLUMNS
    for split in task.splits:
        for batch in split.read(columns):
            count += batch.num_rows
            for name in columns:
                _add(streams, name, batch.column(batch.schema.get_field_index(name)))
    whole = hashlib.sha256(str(count).encode())
    for name in sorted(streams):
        whole.update(name.encode() + b"\0" + streams[name].digest())
    return Digest(count, whole.hexdigest())


def _add(streams: dict[str, _Hash], name: str, column: pa.Array) -> None:
    """Add a column's values to the column's streams. A nested column has a stream for each part."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        _add(streams, f"{name}.count", pc.fill_null(pc.list_value_length(column), -1))
        _add(streams, f"{name}.item", column.flatten())
    elif pa.types.is_struct(kind):
        for number, part in enumerate(column.flatten()):
            _add(streams, f"{name}.{number}", part)
    elif pa.types.is_binary(kind) or pa.types.is_string(kind):
        _add(streams, f"{name}.length", pc.fill_null(pc.binary_length(column), -1))
        filled = pc.fill_null(column, b"" if pa.types.is_binary(kind) else "")
        _, ends, data = filled.buffers()
        if data is not None and len(filled):
            bounds = memoryview(ends).cast("i")
            _stream(streams, name).update(memoryview(data)[bounds[filled.offset] : bounds[filled.offset + len(filled)]])
    else:
        fixed = pc.fill_null(column.cast(pa.int64()), -(2**63))
        data = fixed.buffers()[1]
        if data is not None and len(fixed):
            _stream(streams, name).update(memoryview(data)[fixed.offset * 8 : (fixed.offset + len(fixed)) * 8])


def _stream(streams: dict[str, _Hash], name: str) -> _Hash:
    return streams.setdefault(name, hashlib.sha256())
