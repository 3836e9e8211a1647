"""Random records and batches for the property tests."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.records.helpers import FORMATS
from tidelog.records.batch import LOG_APPEND_TIME
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.legacy import build_message_set
from tidelog.records.records import Record

INT64_MAX = 2**63 - 1

timestamps = st.one_of(
    st.just(-1),
    st.integers(1_600_000_000_000, 1_600_000_100_000),
    st.integers(0, INT64_MAX - 1),  # the last one is too far from none, -1, to share a batch with it
)
payloads = st.none() | st.binary(max_size=20) | st.binary(min_size=100, max_size=300)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=4).map(tuple)


class Batch(NamedTuple):
    """A batch as it was built, and what reading it must give."""

    data: bytearray
    records: list[Record]
    magic: int
    codec: Codec


@st.composite
def batches(draw: Any, max_records: int = 12) -> Batch:
    """Batches of every format and codec, with gaps between offsets and times in any order."""
    magic, codec = draw(st.sampled_from(FORMATS))
    timestamp_type = draw(st.sampled_from([0, 1]))
    append_time = draw(st.integers(0, INT64_MAX))
    count = draw(st.integers(1, max_records))
    base_offset = draw(st.sampled_from([0, 1, 5, 2**31 - 1, 2**40]))
    gaps = draw(st.lists(st.sampled_from([1, 1, 1, 2, 300]), min_size=count, max_size=count))
    records = []
    offset = base_offset
    for gap in gaps:
        head = draw(headers) if magic == 2 else ()
        records.append(Record(offset, draw(timestamps), 0, draw(payloads), draw(payloads), head))
        offset += gap
    if magic == 2:
        is_known = draw(st.booleans())
        data = build_batch_v2(
            records,
            codec=codec,
            timestamp_type=timestamp_type,
            append_time=append_time,
            leader_epoch=draw(st.integers(-1, 2**31 - 1)),
            producer=Producer(draw(st.integers(0, INT64_MAX)), draw(st.integers(0, 2**15 - 1)), 0) if is_known else Producer(),
            is_transactional=is_known and draw(st.booleans()),
            delete_horizon_ms=draw(st.none() | st.integers(0, 2**61)) if timestamp_type == 0 else None,
        )
    else:
        data = build_message_set(records, magic, codec=codec, timestamp_type=timestamp_type, append_time=append_time)
    if magic == 0:
        expected = [record._replace(timestamp=-1, timestamp_type=-1) for record in records]
    elif timestamp_type == LOG_APPEND_TIME:
        expected = [record._replace(timestamp=append_time, timestamp_type=1) for record in records]
    else:
        expected = records
    return Batch(data, expected, magic, codec)
