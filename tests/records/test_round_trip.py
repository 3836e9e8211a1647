"""Properties: what is built is read back, record by record and as columns, whatever the format."""

from __future__ import annotations

from array import array
from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.records.helpers import header_of, read_all
from tests.records.strategies import Batch, batches, headers, payloads, timestamps
from tests.records.test_columns import entries, longs, seen
from tidelog.records.batch import iter_headers
from tidelog.records.builder import (
    binary_column,
    build_batch_v2,
    build_batch_v2_from_columns,
    encode_headers,
    encode_varint,
)
from tidelog.records.columns import Columns
from tidelog.records.compression import Codec
from tidelog.records.records import Record


@examples(150)
@given(batch=batches())
def test_batches_are_read_as_they_were_built(batch: Batch) -> None:
    assert read_all(batch.data) == batch.records
    columns = Columns()
    for header in iter_headers(batch.data):
        columns.add(header, batch.data, header.position)
    assert longs(columns.offsets()) == [record.offset for record in batch.records]
    assert longs(columns.timestamps().data) == [record.timestamp for record in batch.records]
    assert entries(columns.keys()) == seen(columns.key_views()) == [record.key for record in batch.records]
    assert entries(columns.values()) == seen(columns.value_views()) == [record.value for record in batch.records]


@examples(80)
@given(batch=batches(), bounds=st.tuples(*[st.none() | st.integers(-1, 2**62)] * 2, *[st.none() | st.integers(0, 2**41)] * 2))
def test_bounds_are_a_plain_filter(batch: Batch, bounds: tuple[int | None, ...]) -> None:
    start, end, low, high = bounds
    columns = Columns(*bounds)
    for header in iter_headers(batch.data):
        columns.add(header, batch.data, header.position)
    within = [r for r in batch.records if (low is None or r.offset >= low) and (high is None or r.offset < high)]
    timed = start is not None or end is not None
    wanted = [
        r.offset
        for r in within
        if not timed or (r.timestamp != -1 and (start is None or r.timestamp >= start) and (end is None or r.timestamp < end))
    ]
    assert longs(columns.offsets()) == wanted
    # Where the header rules a whole batch out by its times, nobody looks inside for records that have none.
    looked_into = [h for h in iter_headers(batch.data) if start is None or h.max_timestamp == -1 or h.max_timestamp >= start]
    missing = sum(r.timestamp == -1 for r in within) if timed else 0
    assert columns.without_timestamp == missing or (not looked_into and columns.without_timestamp == 0)


@examples(80)
@given(
    rows=st.lists(st.tuples(timestamps, payloads, payloads, headers), min_size=1, max_size=30),
    limit=st.integers(1, 3000),
    codec=st.sampled_from(list(Codec)),
    data=st.data(),
)
def test_columns_are_cut_into_batches(
    rows: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
    limit: int,
    codec: Codec,
    data: st.DataObject,
) -> None:
    """Picked rows of shared columns, batch after batch within a limit, are the same as batches of single records."""
    indices = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=40))
    times, keys, values, heads = zip(*rows, strict=True)
    first = 0
    while first < len(indices):
        built = build_batch_v2_from_columns(
            array("q", times),
            binary_column(keys),
            binary_column(values),
            base_offset=1000 + first,
            headers=binary_column([encode_headers(head) for head in heads]),
            indices=array("i", indices),
            first=first,
            limit_bytes=limit,
            codec=codec,
        )
        picked = indices[first : first + built.record_count]
        records = [Record(1000 + first + i, rows[row][0], 0, *rows[row][1:]) for i, row in enumerate(picked)]
        assert built.data == build_batch_v2(records, codec=codec)
        assert read_all(built.data) == records
        assert (built.last_offset, built.max_timestamp) == (records[-1].offset, max(record.timestamp for record in records))
        if codec is Codec.NONE:
            assert len(built.data) <= limit or built.record_count == 1
        first += built.record_count


@given(value=st.integers(-(2**31), 2**31 - 1) | st.integers(-(2**63), 2**63 - 1))
def test_varints(kernel: ModuleType, value: int) -> None:
    """The kernel writes and measures varints as `encode_varint` does: here as a timestamp delta."""
    encoded = encode_varint(value)
    assert len(encoded) <= 10
    if not 0 <= value < 2**62:
        return
    empty = binary_column([None])
    arguments = (array("q", [value]), empty, empty, None, None, None, 0, 0, 1)
    rows, size, largest = kernel.size_records_v2(*arguments, kernel.NO_LIMIT)
    out = bytearray(size)
    assert kernel.encode_records_v2(out, 0, *arguments) == (rows, size, largest) == (1, len(out), value)
    body = b"\x00" + encoded + b"\x00\x01\x01\x00"
    assert out == encode_varint(len(body)) + body


@examples(60)
@given(batch=batches())
def test_headers_tell_what_is_inside(batch: Batch) -> None:
    headers = list(iter_headers(batch.data))
    assert headers[-1].last_offset == batch.records[-1].offset
    assert max(header.max_timestamp for header in headers) == max(record.timestamp for record in batch.records)
    assert headers[-1].end_position == len(batch.data)
    if batch.magic == 2:
        assert header_of(batch.data).record_count == len(batch.records)
        assert header_of(batch.data).base_offset == batch.records[0].offset
