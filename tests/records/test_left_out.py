"""What a header says is believed only once its checksum was verified: also where it leaves a batch out.

One flipped bit makes a batch a control batch, one of an aborted transaction, or one outside of the bounds. Each bit under the
checksum is flipped, and each reader that leaves batches out by their headers has to notice.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.records.helpers import simple_records
from tidelog.errors import CorruptBatchError
from tidelog.groups.lag import search
from tidelog.records.batch import HEADER_BYTES, iter_headers
from tidelog.records.builder import NO_PRODUCER, Producer, build_batch_v2
from tidelog.records.columns import Columns
from tidelog.records.compression import Codec
from tidelog.records.conversion import down_convert
from tidelog.records.markers import data_batches
from tidelog.records.records import iter_records

CHECKED_FROM = 21
Read = Callable[[memoryview], int]


def columns(**bounds: int) -> Read:
    def read(data: memoryview) -> int:
        taken = Columns(**bounds)
        return sum(taken.add(header, data, header.position) for header in iter_headers(data))

    return read


def consumed(data: memoryview) -> int:
    """What a consumer with read_committed gets, of producers whose transactions were aborted."""
    count = 0
    for header, is_aborted in data_batches(iter_headers(data), data, [(0, producer_id) for producer_id in range(256)]):
        if not is_aborted:
            count += len(list(iter_records(header, data[header.position : header.end_position])))
    return count


def searched(data: memoryview) -> int:
    return search(data, 0, 1000, path="t-0").position


def converted(data: memoryview) -> int:
    return sum(len(down_convert(data, header, 1, 0)) for header in iter_headers(data))


@pytest.mark.parametrize("is_transactional", [False, True])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize(
    "read",
    [
        pytest.param(columns(), id="columns"),
        pytest.param(columns(min_offset=101), id="from the middle"),
        pytest.param(columns(min_offset=1000), id="after it"),
        pytest.param(columns(min_timestamp=0, end_timestamp=2**60), id="of some time"),
        pytest.param(columns(min_timestamp=2**60), id="of a later time"),
        pytest.param(consumed, id="consumer"),
        pytest.param(searched, id="lag"),
        pytest.param(converted, id="down-converted"),
    ],
)
def test_no_flipped_bit_leaves_a_batch_out(read: Read, codec: Codec, is_transactional: bool) -> None:
    records = simple_records(3, base_offset=100)
    producer = Producer(200, 0, 0) if is_transactional else NO_PRODUCER
    sound = build_batch_v2(records, codec=codec, producer=producer, is_transactional=is_transactional)
    read(memoryview(sound))
    for index in range(CHECKED_FROM, HEADER_BYTES):
        for bit in range(8):
            broken = bytearray(sound)
            broken[index] ^= 1 << bit
            with pytest.raises(CorruptBatchError):
                read(memoryview(broken))
